"""Tokens against a running hub, as an operator sets them up: paho gets in, nobody else does, and whoever may not stay is closed."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from iothub.config.datadir import DataDir
from iothub_tenants.accounts import devices, tenants, token_issuers
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from tests.support.clients.clients import unique
from tests.support.clients.packets import DISCONNECT
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub
from tests.support.ports import free_port
from tests.support.tokens import EDDSA, ES256, HS256, PUBLIC, RS256, issuer, jwk, public_pem, token
from tests.support.waiting import PATIENCE_S, until

CLIENTS: list[RawClient] = []
ROBOTS = ("robot", "second", "third")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Tenants `acme` and `beta` with the same device names; each trusts its own keys."""
    base = tmp_path_factory.mktemp("tokens")
    many_wrong = {"auth.failures": "off"}  # of the same devices, test after test
    made = Hub(base / "hub", ports={"tcp": free_port()}, settings=many_wrong)
    made.init()
    with accounts(made) as store:
        for number, tenant in enumerate(("acme", "beta")):
            tenants.create(store, tenant, plan="unlimited")
            devices.create(store, tenant, "plain")
            for name in ROBOTS:
                devices.create(store, tenant, name, with_token=True)
            token_issuers.add(store, tenant, issuer(number=number))
    made.start()
    yield made
    code = made.stop()
    assert code == 0
    assert "Traceback" not in made.log, made.log


@contextmanager
def accounts(hub: Hub) -> Iterator[AccountStore]:
    """Access to the accounts: quicker than a process for every command. What must be proven of the command is run through it."""
    files = DataDir(hub.data_dir)
    with closing(AccountStore(sqlite_url(files.accounts), pepper=files.pepper())) as store:
        yield store


@pytest.fixture(autouse=True)
def opened() -> Iterator[list[RawClient]]:
    """Clients go when the test ends."""
    CLIENTS.clear()
    yield CLIENTS
    for client in CLIENTS:
        client.close()


def fresh(device: str = "robot", algorithm: str = ES256, lasts_s: float = 60.0, **options: Any) -> bytes:
    return token(algorithm, sub=device, exp=time.time() + lasts_s, **options)


def ask(hub: Hub, version: int, username: str, shown: bytes) -> tuple[RawClient, int]:
    client = RawClient(hub.ports["tcp"], version)
    CLIENTS.append(client)
    return client, client.connect(unique(), username, shown, keep_alive=600).code


def join(hub: Hub, version: int, username: str, shown: bytes) -> RawClient:
    client, code = ask(hub, version, username, shown)
    assert code == 0
    return client


def closed_by_the_hub(client: RawClient) -> None:
    """Wait until the hub closes. 5.0 is told 0x87."""
    packets = client.expect_closed()
    assert [each.code for each in packets if each.kind == DISCONNECT] == ([0x87] if client.version == 5 else [])


@pytest.mark.parametrize("algorithm", [*PUBLIC, HS256])
def test_paho_gets_in_with_a_token(hub: Hub, tmp_path: Path, algorithm: str) -> None:
    """Issuer added under the running hub, device created, connected, published, received; then the issuer goes."""
    name, secret = f"i-{algorithm.lower()}", "shared secret of thirty-two bytes or more"
    path = tmp_path / "key"
    if algorithm == HS256:
        hub.run("token-issuer", "add", "acme", name, "--secret-stdin", secret=secret)
    else:
        path.write_text(json.dumps({"keys": [jwk(algorithm, "k", 7)]}))
        hub.run("token-issuer", "add", "acme", name, "--jwks-file", str(path))
    shown = fresh("robot", algorithm, number=7, secret=secret.encode(), **({} if algorithm == HS256 else {"kid": "k"}))
    until(lambda: ask(hub, 5, "acme/robot", shown)[1] == 0, "the issuer is known")
    seen: queue.Queue[Any] = queue.Queue()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, unique(), protocol=paho.MQTTv5)
    client.username_pw_set("acme/robot", shown.decode())
    client.on_connect = lambda _c, _u, _f, code, _p: seen.put(code.is_failure)
    client.on_subscribe = lambda _c, _u, _m, _codes, _p: seen.put("subscribed")
    client.on_message = lambda _c, _u, message: seen.put(message.payload)
    client.on_disconnect = lambda _c, _u, _f, code, _p: seen.put(code.value)
    client.connect("127.0.0.1", hub.ports["tcp"])
    client.reconnect_delay_set(30, 30)
    client.loop_start()
    try:
        assert seen.get(timeout=PATIENCE_S) is False
        client.subscribe("a", 1)
        assert seen.get(timeout=PATIENCE_S) == "subscribed"
        client.publish("a", b"by token", 1)
        assert seen.get(timeout=PATIENCE_S) == b"by token"
        hub.run("token-issuer", "remove", "acme", name, "--yes")
        assert seen.get(timeout=PATIENCE_S) == 0x87
    finally:
        client.disconnect()
        client.loop_stop()


def test_wrong_tokens_are_refused_alike(hub: Hub) -> None:
    """One code, one delay, for every kind; the log says which, and never the token."""
    good = fresh()
    wrong = {
        "token_subject": fresh("second"),
        "token_signature": fresh(number=1),
        "token_expired": fresh(lasts_s=-1),
        "token_not_yet_valid": fresh(nbf=time.time() + 60),
        "token_audience": fresh(aud="other"),
        "token_algorithm": fresh(algorithm=RS256),
        "token_malformed": good.rpartition(b".")[0] + b".",
        "token_too_large": fresh(more="x" * 9000),
        "token_claims": token(sub="robot"),
    }
    for version in (4, 5):
        for shown in wrong.values():
            began = time.monotonic()
            client, code = ask(hub, version, "acme/robot", shown)
            took = time.monotonic() - began
            assert code == (0x87 if version == 5 else 5)
            assert took >= 0.23
            assert client.expect_closed() == []
    for username in ("acme/nobody", "nobody/robot", "acme/plain"):
        assert ask(hub, 5, username, good)[1] == 0x87
    assert ask(hub, 5, "acme/robot", good)[1] == 0

    log = hub.log
    assert [cause for cause in wrong if cause not in log] == []
    assert not [cause for cause, shown in wrong.items() if shown[-40:].decode() in log]
    assert good[-40:].decode() not in log


def test_keys_of_a_tenant_open_nothing_of_another(hub: Hub) -> None:
    """The same names everywhere, other keys; a token that names the other tenant is signed by nobody there."""
    assert ask(hub, 5, "beta/robot", fresh(number=1))[1] == 0
    for username, shown in (
        ("beta/robot", fresh()),
        ("beta/robot", fresh("beta/robot")),
        ("acme/robot", fresh(number=1)),
        ("acme/robot", fresh("acme/robot", number=1)),
        ("beta/robot", fresh("acme/robot", number=1)),
    ):
        assert ask(hub, 5, username, shown)[1] == 0x87


@pytest.mark.parametrize("version", [4, 5])
def test_token_that_ends_closes_its_connection(hub: Hub, version: int) -> None:
    """Not before; a new one is let in at once."""
    witness = join(hub, version, "acme/third", fresh("third"))
    for lasts_s in (1.5, 15.0, 150.0):  # the first one that is long enough for a connect on this machine
        ends_at = time.time() + lasts_s
        client, code = ask(hub, version, "acme/second", token(sub="second", exp=ends_at))
        if code == 0:
            break

    closed_by_the_hub(client)

    assert (code, time.time() >= ends_at) == (0, True)
    witness.ping()
    assert ask(hub, version, "acme/second", fresh("second"))[1] == 0


def test_withdrawn_trust_closes(hub: Hub, tmp_path: Path) -> None:
    """A removed issuer, a replaced key, a disabled, changed or deleted device: those, and no others."""
    with accounts(hub) as store:
        token_issuers.add(store, "acme", issuer(EDDSA, "going", number=3))
        for name in ("gone1", "gone2", "gone3"):
            devices.create(store, "acme", name, with_token=True)
    until(lambda: ask(hub, 5, "acme/gone3", fresh("gone3"))[1] == 0, "the last device is known")
    witness = join(hub, 5, "acme/robot", fresh())
    (tmp_path / "next.pem").write_text(public_pem(EDDSA, 4))
    for username, shown, words in (
        ("gone1", fresh("gone1"), ("device", "disable", "acme", "gone1")),
        ("gone2", fresh("gone2"), ("device", "rotate-secret", "acme", "gone2")),
        ("gone3", fresh("gone3"), ("device", "delete", "acme", "gone3", "--yes")),
        (
            "second",
            fresh("second", EDDSA, number=3),
            ("token-issuer", "update", "acme", "going", "--public-key-file", str(tmp_path / "next.pem")),
        ),
        ("second", fresh("second", EDDSA, number=4), ("token-issuer", "remove", "acme", "going", "--yes")),
    ):
        client = join(hub, 5, f"acme/{username}", shown)
        hub.run(*words)
        closed_by_the_hub(client)
        assert ask(hub, 5, f"acme/{username}", shown)[1] == 0x87
    witness.ping()


def test_hub_that_starts_anew_knows_its_issuers(hub: Hub) -> None:
    """Nothing of this lives in memory alone."""
    assert hub.stop() == 0
    hub.start()

    join(hub, 5, "acme/robot", fresh())
