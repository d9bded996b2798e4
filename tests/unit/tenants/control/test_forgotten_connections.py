"""A connection that has ended is referred to by nobody: the garbage collector does not look at connections, so one in a circle would stay."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred

from iothub.base.reasons import Reason
from iothub.engine.state import Connection
from iothub.hooks import Attempt, Challenge
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import PUBLISH
from tests.support.in_process.control_harness import Harness, now, plugged
from tests.support.in_process.kept_sessions import KEPT, WILL

MakeHarness = Callable[..., Harness]
_TESTS_OWN = 2  # the name in the test, the argument of `getrefcount`


def is_forgotten(harness: Harness, connection: Connection) -> bool:
    """Whether only the caller still has it. The doubles of its socket forget it first."""
    for socket in [each for each in harness.sockets if each.connection is connection]:
        assert connection.is_closed
        harness.sockets.remove(socket)
        socket.connection = socket.transport.connection = None
    gc.collect()
    return sys.getrefcount(connection) == _TESTS_OWN + 1


def drop(_harness: Harness, client: Client) -> None:
    client.drop()


def leave(_harness: Harness, client: Client) -> None:
    client.disconnect()


def leave_with_will(_harness: Harness, client: Client) -> None:
    client.disconnect(0x04)


def be_silent(harness: Harness, _client: Client) -> None:
    for _ in range(4):
        harness.pass_time(30_000)


def be_taken_over(harness: Harness, client: Client) -> None:
    harness.join(client.client_id)


def send_nonsense(_harness: Harness, client: Client) -> None:
    client.send(b"\xf0\x00")


def be_closed_by_the_hub(harness: Harness, client: Client) -> None:
    connection = harness.session(client.client_id).connection
    harness.plane.close(connection, Reason.SERVER_SHUTDOWN)


def leave_in_the_middle_of_qos_2(harness: Harness, client: Client) -> None:
    """PUBLISH without PUBREL, one that the store has not answered, one of the hub's that has no PUBREC, half a packet."""
    client.publish("a/1", b"x", qos=2, packet_id=7)
    client.expect(PUBLISH)
    harness.is_store_held = True
    client.send(client.publish_bytes("a/2", b"y", qos=2, packet_id=8))
    client.send(client.publish_bytes("a/3", b"z", qos=1, packet_id=9))
    client.send(client.publish_bytes("a/4", b"z" * 100)[:20])
    client.drop()
    harness.is_store_held = False
    harness.settle()


ENDS = (
    drop,
    leave,
    leave_with_will,
    be_silent,
    be_taken_over,
    send_nonsense,
    be_closed_by_the_hub,
    leave_in_the_middle_of_qos_2,
)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_kept", [False, True], ids=["transient", "persistent"])
def test_connection_is_forgotten_however_it_ends(
    make_harness: MakeHarness, end: Callable[[Harness, Client], None], is_kept: bool
) -> None:
    """Its subscriptions, its queue, its Will that is still to come: none of them has it any more."""
    harness = make_harness()
    options = {"clean": False, "props": KEPT} if is_kept else {}
    client = harness.join(will=WILL, will_props=[(names.WILL_DELAY, 10)], **options)
    client.subscribe(("a/#", 2))
    for qos in (0, 1, 2):
        client.publish("a/b", b"x", qos=qos, packet_id=qos + 1)
        client.take()
    connection = harness.session("c").connection

    end(harness, client)
    harness.settle()

    assert is_forgotten(harness, connection)
    harness.close()


@pytest.mark.parametrize("username", ["acme/nobody", "acme/dev1"])
def test_connection_that_never_had_a_session_is_forgotten(make_harness: MakeHarness, username: str) -> None:
    """A refused CONNECT, and a client that sends none."""
    harness = make_harness()
    for act in (
        lambda: harness.ask(username=username, password="wrong"),
        lambda: harness.open_connection().send(b"\x10\x10\x00"),
        harness.open_connection,
    ):
        act()
        connection = harness.sockets[-1].connection
        assert connection is not None
        harness.pass_time(60)

        assert is_forgotten(harness, connection)


def begin_riddle(harness: Harness) -> tuple[Client, Connection]:
    """Send a CONNECT with an Authentication Method."""
    client = harness.open_connection()
    client.send(client.connect_bytes("c", "acme/dev1", None, props=[(names.AUTH_METHOD, "riddle")]))
    connection = harness.sockets[-1].connection
    assert connection is not None
    return client, connection


def test_connection_that_ends_while_a_plug_in_thinks_is_forgotten(make_harness: MakeHarness) -> None:
    """Its next step is a challenge, which nobody will answer."""
    thinking: Deferred[Challenge] = Deferred()
    harness = make_harness(hooks=plugged(authenticate=lambda _attempt: thinking))
    client, connection = begin_riddle(harness)
    client.drop()

    thinking.callback(Challenge(b"what is 6 x 7?"))
    harness.pass_time(60)

    assert is_forgotten(harness, connection)
    assert len(harness.control.connect_timeouts) == 0


def test_connection_is_forgotten_though_a_plug_in_never_answers(make_harness: MakeHarness) -> None:
    """It keeps what it waits for in the attempt's memory, which the connection led to."""

    def wait(attempt: Attempt) -> Deferred[bool]:
        attempt.memory["waits"] = Deferred()
        return attempt.memory["waits"]

    harness = make_harness(hooks=plugged(authenticate=wait))
    client, connection = begin_riddle(harness)
    client.drop()
    harness.pass_time(60)
    now(harness.control.connect_timeouts.reject_overdue())

    assert is_forgotten(harness, connection)
