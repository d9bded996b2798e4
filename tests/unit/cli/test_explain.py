"""An explanation from the command line: what each hub says, the step that decides, and an exit code for scripts."""

from __future__ import annotations

import pytest

from iothub.records.admin_commands import Json, Request, Verb
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli


def step(node: int, name: str, outcome: str, rule: str = "") -> Json:
    return {"node": node, "step": name, "outcome": outcome, "reason": f"why {name}", "rule": rule}


def hub(cli: Cli, *rows: Json) -> AnsweringHub:
    return AnsweringHub(cli.data_dir, lambda _request: (list(rows), {}))


def test_hubs_that_say_the_same_are_one_entry(acme: Cli) -> None:
    with hub(acme, step(1, "tenant", "pass"), step(2, "tenant", "pass")) as running:
        said = acme.rows("explain", "connect", "acme/dev1", "--ip", "192.0.2.7", "--persistent")

    argument: Json = {
        "device": "dev1",
        "client_id": "dev1",
        "address": "192.0.2.7",
        "has_certificate": False,
        "is_persistent": True,
    }
    assert running.requests == [Request(Verb.EXPLAIN_CONNECT, "acme", argument)]
    assert (said["is_allowed"], said["deciding"]) == (True, None)
    assert [each["nodes"] for each in said["hubs"]] == [[1, 2]]


def test_one_hub_that_refuses_decides(acme: Cli) -> None:
    rows = (step(1, "connections", "pass"), step(2, "connections", "fail", "quota_connections"))
    with hub(acme, *rows):
        words = ("explain", "publish", "acme/dev1", "a/b", "--size", "2KiB", "--retain", "-o", "json")
        said = acme(*words, code=5).json

    assert (said["is_allowed"], said["deciding"]["rule"]) == (False, "quota_connections")
    assert [(each["nodes"], each["is_allowed"]) for each in said["hubs"]] == [([1], True), ([2], False)]


def test_table_names_the_deciding_step(acme: Cli) -> None:
    with hub(acme, step(1, "tenant", "pass"), step(1, "device", "fail", "unknown_device")):
        ended = acme("explain", "subscribe", "acme/dev1", "a/#", code=5)

    assert "device: why device" in ended.out


def test_username_that_names_no_device_is_refused(acme: Cli) -> None:
    assert "names no device" in acme("explain", "connect", "dev1", code=2).err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("connect", "acme/dev1", "--ip", "foo"), "expected an IP address such as 192.0.2.7; got 'foo'"),
        (
            ("publish", "acme/dev1", "a/b", "--size", "1TiB"),
            "expected a payload of at most 268435455 bytes, the most that MQTT can send; got 1099511627776",
        ),
    ],
)
def test_what_no_client_can_send_is_refused(acme: Cli, words: tuple[str, ...], message: str) -> None:
    """Before any hub is asked."""
    assert message in acme("explain", *words, code=2).err
