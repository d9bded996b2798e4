"""What is open to others: HTTP first, the rest when the hub is ready; closed in the other order."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, succeed

from iothub.config.sections import Config, Http
from iothub.hub import open_sockets
from iothub.hub.open_sockets import OpenSockets


class Sockets:
    """Sockets that note what is done to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, has_http: bool) -> None:
        self.done: list[str] = []
        some, note = SimpleNamespace, self.note
        listeners = some(
            try_ports=note("tried"),
            start=note("opened"),
            stop_accepting=note("accepting ended"),
            close=note("closed"),
            addresses=lambda: {"tcp": ("127.0.0.1", 1883)},
        )
        sockets: Any = some(listeners=listeners, http=some() if has_http else None, verbs={})
        port = some(getHost=lambda: some(host="127.0.0.1", port=8080), stopListening=lambda: succeed(None))
        monkeypatch.setattr(open_sockets.http, "listen", lambda *_, **_kinds: port)
        monkeypatch.setattr(open_sockets, "open_socket", lambda *_: some(close=note("administrators refused")))
        settings = replace(Config(), http=Http(port=0 if has_http else None))
        self.open = OpenSockets(sockets, settings, None, cast("Any", None), cast("Any", None))

    def note(self, what: str) -> Any:
        return lambda: self.done.append(what)


def test_sockets_open_and_close_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sockets = Sockets(monkeypatch, has_http=True)
    assert sockets.open.http_address() == {}

    sockets.open.open_http()
    sockets.open.try_ports()
    sockets.open.open(is_draining=False)
    sockets.open.stop_accepting()
    sockets.open.close_listeners()

    assert sockets.open.http_address() == {"http": "127.0.0.1:8080"}
    assert sockets.open.listening() == {"tcp": "127.0.0.1:1883"}
    assert sockets.done == [
        "tried",
        "opened",
        "accepting ended",
        "administrators refused",
        "closed",
    ]
    assert Deferred.fromCoroutine(sockets.open.close_http()).called


def test_hub_without_http_has_no_address_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor has one whose start failed before anything was open."""
    sockets = Sockets(monkeypatch, has_http=False)

    sockets.open.open_http()
    sockets.open.close_listeners()

    assert (sockets.open.http_address(), sockets.done) == ({}, ["closed"])
    assert Deferred.fromCoroutine(sockets.open.close_http()).called


def test_hub_that_drains_from_its_start_knows_its_ports_and_accepts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    sockets = Sockets(monkeypatch, has_http=False)

    sockets.open.open(is_draining=True)

    assert sockets.open.listening() == {"tcp": "127.0.0.1:1883"}
    assert sockets.done == ["opened", "accepting ended"]
