"""Connection lines: each connect, disconnect and refusal has one, at a bounded rate for each tenant, and never beside the answer."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs
from twisted.internet.task import Clock as Reactor

from iothub.base.reasons import Reason
from iothub.testing.clock import ManualClock
from iothub_services.connections.log import ALL_TENANTS, NAMED, WRITE_DELAY_S, ConnectionLines, ConnectionLog, LineRate
from iothub_services.connections.rejected import NO_TENANT, Client

ACME = Client(7, "acme", "dev1", "c", "192.0.2.1:5", "tcp", 5)
ZETA = ACME._replace(tenant_id=8, tenant="zeta")
STRANGER = ACME._replace(tenant_id=NO_TENANT, tenant="nowhere")
COUNT, WINDOW_S = 3, 10.0
RATE = LineRate(COUNT, WINDOW_S)

Lines = list[MutableMapping[str, Any]]


class World:
    """A log with three lines for each tenant in ten seconds."""

    def __init__(self, *, is_written: bool = True, rate: LineRate | None = RATE) -> None:
        self.reactor = Reactor()
        later = self.reactor.callLater
        self.log = ConnectionLog(ManualClock(wall=12.0), later, ConnectionLines(rate, is_written))

    def lines(self, act: Callable[[], None], seconds: float = WRITE_DELAY_S) -> Lines:
        with capture_logs() as lines:
            act()
            self.reactor.advance(seconds)
        return lines


@pytest.fixture
def world() -> World:
    return World()


def test_connect_disconnect_and_refusal_have_a_line_with_who_and_why(world: World) -> None:
    who = {"tenant": "acme", "device": "dev1", "client_id": "c", "address": "192.0.2.1:5", "listener": "tcp"}
    who |= {"protocol": "5", "log_level": "info"}

    assert world.lines(lambda: world.log.connected(ACME)) == [
        {"event": "client connected", "source": "iothub_services.connections.log", **who}
    ]
    (line,) = world.lines(lambda: world.log.disconnected(ACME, Reason.KEEPALIVE_TIMEOUT))
    assert (line["event"], line["reason"]) == ("client disconnected", "keepalive_timeout")
    (line,) = world.lines(lambda: world.log.refused(ACME, Reason.QUOTA, "quota_connections"))
    assert (line["event"], line["reason"], line["rule"]) == ("client refused", "quota", "quota_connections")


def test_line_is_written_after_the_answer(world: World) -> None:
    """What the log does must not be seen in the time of an answer."""
    assert world.lines(lambda: world.log.refused(ACME, Reason.BANNED, "banned"), WRITE_DELAY_S / 2) == []
    assert len(world.lines(lambda: None)) == 1


def test_tenant_with_many_lines_leaves_those_of_others_alone_and_is_told_what_is_missing(world: World) -> None:
    def storm() -> None:
        for _ in range(100):
            world.log.refused(ACME, Reason.BANNED, "banned")
        world.log.refused(ZETA, Reason.BANNED, "banned")

    lines = world.lines(storm)
    assert [line["tenant"] for line in lines] == ["acme"] * COUNT + ["zeta"]

    (missing,) = world.lines(lambda: None, WINDOW_S)
    assert (missing["event"], missing["tenant"], missing["count"]) == ("connection lines left out", "acme", 97)
    assert world.log.left_out == 97
    assert len(world.lines(lambda: world.log.refused(ACME, Reason.BANNED, "banned"))) == 1


def test_refusals_do_not_use_up_the_lines_of_connects(world: World) -> None:
    def storm() -> None:
        for _ in range(100):
            world.log.refused(ACME, Reason.BANNED, "banned")
        world.log.connected(ACME)

    assert [line["event"] for line in world.lines(storm)] == ["client refused"] * COUNT + ["client connected"]


def test_lines_of_all_tenants_together_are_bounded(world: World) -> None:
    def storm() -> None:
        for number in range(500):
            world.log.connected(ACME._replace(tenant_id=number + 1, tenant=f"t{number}"))

    assert len(world.lines(storm)) == COUNT * ALL_TENANTS
    missing = world.lines(lambda: None, WINDOW_S)
    assert len(missing) == NAMED + 1
    assert sum(line["count"] for line in missing) == 500 - COUNT * ALL_TENANTS


def test_made_up_tenants_share_one_rate(world: World) -> None:
    """Else everybody could fill the log by inventing names."""

    def storm() -> None:
        for number in range(100):
            world.log.refused(STRANGER._replace(tenant=f"made-up-{number}"), Reason.BAD_CREDENTIALS, "unknown_tenant")

    assert len(world.lines(storm)) == COUNT
    (missing,) = world.lines(lambda: None, WINDOW_S)
    assert (missing["tenant"], missing["count"]) == ("", 97)


def test_log_that_is_switched_off_keeps_the_refused_all_the_same() -> None:
    world = World(is_written=False)

    assert world.lines(lambda: world.log.refused(ACME, Reason.BANNED, "banned"), WINDOW_S) == []
    (kept,) = world.log.rejected.of_tenant(7, "acme")
    assert (kept.at_ms, kept.client, kept.reason, kept.rule) == (12_000, ACME, "banned", "banned")
    assert world.reactor.getDelayedCalls() == []


def test_log_without_a_rate_writes_every_line() -> None:
    world = World(rate=None)

    assert len(world.lines(lambda: [world.log.connected(ACME) for _ in range(500)] and None)) == 500


def test_hub_that_stops_writes_what_waits(world: World) -> None:
    with capture_logs() as lines:
        world.log.connected(ACME)
        world.log.write()

    assert len(lines) == 1


def test_settings_may_change_while_clients_come(world: World) -> None:
    world.log.apply(ConnectionLines(None, is_written=False))
    assert world.lines(lambda: world.log.connected(ACME)) == []

    world.log.apply(ConnectionLines(RATE, is_written=True))
    assert len(world.lines(lambda: world.log.connected(ACME))) == 1


def test_client_without_a_line_is_counted_and_need_not_be_described(world: World) -> None:
    """A storm of connects costs a count each; the next window has lines again."""

    def storm() -> None:
        for _ in range(100):
            if world.log.has_line(ACME.tenant_id, ACME.tenant):
                world.log.connected(ACME)

    assert len(world.lines(storm)) == COUNT
    assert not world.log.has_line(ACME.tenant_id, ACME.tenant)
    assert world.log.has_line(ZETA.tenant_id, ZETA.tenant)
    assert world.log.left_out == 98
    (missing,) = world.lines(lambda: None, WINDOW_S)
    assert (missing["tenant"], missing["count"]) == ("acme", 98)
    assert world.log.has_line(ACME.tenant_id, ACME.tenant)


def test_no_line_is_counted_where_none_is_written() -> None:
    world = World(is_written=False)

    assert not world.log.has_line(ACME.tenant_id, ACME.tenant)
    assert world.log.left_out == 0
