"""The challenge of docs/guide/hooks.md, as a plug-in of a running hub."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.packets import AUTH, CONNACK, Properties, packet, properties
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub

GUIDE = Path(__file__).parents[3] / "docs/guide/hooks.md"
METHOD = "HMAC-SHA256"
KEY = bytes(range(32))
NONCE = b"n" * 16


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub with tenant `acme`, which has no device in its accounts."""
    site = tmp_path / "site"
    info = site / "key_proof-1.0.dist-info"
    info.mkdir(parents=True)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (site / "key_proof.py").write_text(blocks[1], encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: key-proof\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[iothub.hooks]\nauthenticate = key_proof:authenticate\n")
    (tmp_path / "keys.json").write_text(json.dumps({"acme/dev1": KEY.hex()}))
    environment = {"PYTHONPATH": str(site), "DEVICE_KEYS": str(tmp_path / "keys.json")}
    made = Hub(tmp_path / "hub", environment=environment)
    made.init()
    made.run("tenant", "create", "acme")
    made.start()
    yield made
    made.close()


def said(data: bytes) -> Properties:
    return [(names.AUTH_METHOD, METHOD), (names.AUTH_DATA, data)]


def signed(key: bytes, role: bytes, nonces: bytes) -> bytes:
    return hmac.digest(key, role + nonces, "sha256")


def answer(client: RawClient, code: int, key: bytes) -> bytes:
    """Take the challenge, sign it, and return both nonces."""
    challenge = client.expect(AUTH)
    nonce = challenge.property(names.AUTH_DATA)
    assert challenge.code == 0x18
    assert isinstance(nonce, bytes)
    nonces = NONCE + nonce
    client.send(packet(0xF0, bytes((code,)) + properties(said(signed(key, b"device", nonces)))))
    return nonces


def test_device_and_hub_prove_themselves(hub: Hub) -> None:
    """At CONNECT, and again while it is connected [MQTT-4.12.0-5] [MQTT-4.12.1-1]."""
    with RawClient(hub.ports["tcp"], 5) as client:
        client.send(client.connect_bytes("right", "acme/dev1", None, props=said(NONCE)))
        nonces = answer(client, 0x18, KEY)
        connack = client.expect(CONNACK)
        assert (connack.code, connack.property(names.AUTH_DATA)) == (0, signed(KEY, b"hub", nonces))

        client.send(packet(0xF0, bytes((0x19,)) + properties(said(NONCE))))
        nonces = answer(client, 0x18, KEY)
        proof = client.expect(AUTH)
        assert (proof.code, proof.property(names.AUTH_DATA)) == (0x00, signed(KEY, b"hub", nonces))


def test_wrong_key_is_refused(hub: Hub) -> None:
    """[MQTT-4.12.0-4]."""
    with RawClient(hub.ports["tcp"], 5) as client:
        client.send(client.connect_bytes("wrong", "acme/dev1", None, props=said(NONCE)))
        answer(client, 0x18, bytes(32))
        assert client.expect(CONNACK).code == 0x87
