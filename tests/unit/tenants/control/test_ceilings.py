"""What a CONNECT may carry before its tenant is known: ceilings that no plan lifts, told to the client and to the log."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.clients import property_names as names
from tests.support.in_process.control_harness import Harness


def properties(count: int) -> dict[str, Any]:
    return {"props": [(names.USER_PROPERTY, (str(number), "v")) for number in range(count)]}


@pytest.mark.parametrize(
    ("options", "code", "reason", "rule", "claimed"),
    [
        (properties(10_000), 0x97, "quota", "CONNECT: more than 1024 User Properties", ("", "", "")),
        (
            {"client_id": "c" * 257},
            0x85,
            "client_id_invalid",
            "CONNECT: the Client Identifier has 257 bytes",
            ("acme", "dev1", "c" * 256),
        ),
    ],
)
def test_ceiling_is_named_in_the_log(
    harness: Harness, options: dict[str, Any], code: int, reason: str, rule: str, claimed: tuple[str, str, str]
) -> None:
    """Also where the tenant's plan has no limit; [MQTT-3.1.3-8] for the Client Identifier, whose tenant hears of it."""
    harness.limit("user_properties=unlimited")

    with capture_logs() as lines:
        assert harness.ask(**options).connack.code == code
        harness.connection_log.write()

    (line,) = [line for line in lines if line["event"] == "client refused"]
    assert line["reason"] == reason
    assert line["rule"].startswith(rule)
    assert line["address"]
    assert (line["tenant"], line["device"], line["client_id"]) == claimed


def test_connect_below_the_ceilings_is_let_in(harness: Harness) -> None:
    harness.limit("user_properties=unlimited")

    assert harness.ask(client_id="c" * 256, **properties(1024)).connack.code == 0
