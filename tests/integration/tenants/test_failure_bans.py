"""Bans that a running hub makes after failed logins: an operator sees them, and lifts them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Two failures ban, and a refusal needs no time."""
    settings = {"auth.failures": "2/1m", "auth.ban": "1h", "auth.failure_reply_ms": "0"}
    made = Hub(tmp_path / "hub", settings=settings)
    made.init()
    made.tenant("acme", "dev1", plan="standard")
    made.start()
    yield made
    made.close()


def login(hub: Hub, secret: str, device: str = "dev1") -> int:
    with RawClient(hub.ports["tcp"], 5) as client:
        return client.connect("c", f"acme/{device}", secret).code


def test_operator_sees_and_lifts_the_hubs_own_bans(hub: Hub) -> None:
    """Also that of a name that no device has: who tries it is told nothing, the operator is."""
    for device in ("dev1", "nobody"):
        assert [login(hub, "wrong", device) for _ in range(2)] == [0x87, 0x87]
    assert login(hub, "secret") == 0x87

    rows = hub.rows("ban", "list", "acme")
    assert [(row["kind"], row["name"], row["address"]) for row in rows] == [
        ("failures", "dev1", "127.0.0.1"),
        ("failures", "nobody", "127.0.0.1"),
    ]
    assert rows[0]["reason"] == "automatic: 2 failed logins within 60 s"
    hub.run("ban", "remove", "acme", "failures", "dev1", "--from", "127.0.0.1")

    assert login(hub, "secret") == 0
    assert [row["name"] for row in hub.rows("ban", "list", "acme")] == ["nobody"]
    assert hub.run("ban", "remove", "acme", "failures", "dev1", check=False).returncode == 3
    hub.stop()
    assert hub.rows("ban", "list", "acme") == []
