"""The backlog's bookkeeping, the subscriptions', and a session without a policy, which may do nothing."""

from __future__ import annotations

from iothub.engine.message import Delivery, Message
from iothub.engine.router import Subscription
from iothub.engine.state import Session, TenantPlane
from iothub.testing.engine import Bench, Permissive, TopicPolicy, packets


def make_session() -> Session:
    return Session(TenantPlane(1, "acme"), "c", "d", False)


def test_backlog_is_a_queue_that_leaves_nothing_behind() -> None:
    """First in, first out, bytes exact, no list when it is empty."""
    session = make_session()
    deliveries = [Delivery(Message(b"a", bytes(number)), number % 2, False, ()) for number in range(200)]
    for delivery in deliveries:
        session.push(delivery)
    assert (session.backlog_length(), session.backlog_qos0) == (200, 100)

    taken = []
    while session.backlog is not None:
        taken.append(session.peek())
        session.pop()

    assert taken == deliveries
    assert (session.backlog_bytes, session.backlog_qos0, session.backlog_start) == (0, 0, 0)
    assert session.pop() == 0
    assert session.peek() is None


def test_backlog_can_be_taken_as_a_whole() -> None:
    session = make_session()
    deliveries = [Delivery(Message(b"a", b""), 1, False, ()) for _ in range(5)]
    for delivery in deliveries:
        session.push(delivery)
    session.pop()

    assert session.take_backlog() == deliveries[1:]
    assert session.take_backlog() == []
    assert session.backlog_bytes == 0


def test_session_denies_until_it_is_given_a_policy() -> None:
    session = make_session()

    assert not session.may_publish(b"a", 10)
    assert not session.may_receive(b"a", 10)


def test_session_keeps_a_bounded_number_of_answers() -> None:
    """A client that uses ever new topics does not fill memory."""
    session = make_session()
    session.apply_policy(TopicPolicy({b"1"}, {b"2"}))

    for number in range(100):
        assert session.may_publish(b"%d" % number, 10) is (number == 1)
        assert session.may_receive(b"%d" % number, 10) is (number == 2)

    assert len(session.publish_grants or ()) <= 10
    assert len(session.receive_grants or ()) <= 10


class EverythingButDollar(Permissive):
    """`#` may be received, and by the specification that says nothing of Topic Names that begin with `$`."""

    def may_receive(self, topic: bytes) -> bool:
        return topic != b"$SYS/secret"


def test_session_that_receives_everything_is_still_asked_for_dollar_topics() -> None:
    """`#` does not cover `$SYS/...` [MQTT-4.7.2-1]: neither as a filter nor as a right."""
    session = make_session()

    session.apply_policy(EverythingButDollar())

    assert session.may_receive(b"secret", 10)
    assert session.may_receive(b"$SYS/open", 10)
    assert not session.may_receive(b"$SYS/secret", 10)


def test_dollar_topics_pass_the_gate_only_with_a_right_of_their_own() -> None:
    """The way out asks as the session does."""
    bench = Bench()
    reader = bench.client("reader", policy=EverythingButDollar())
    reader.subscribe(b"$SYS/#")

    for topic in (b"$SYS/secret", b"$SYS/open"):
        bench.plane.publish(bench.tenant, Message(topic, b"x"))

    assert packets(reader.take()) == [(0x30, b"\0\x09$SYS/openx")]


def test_session_knows_its_subscriptions_however_many_there_are() -> None:
    """None, one without a table, and several; one takes the place of that with its Topic Filter and group."""
    session = make_session()
    first, other, shared, again = (
        Subscription(session, filter, group, qos)
        for filter, group, qos in ((b"a", None, 0), (b"b", None, 0), (b"a", b"g", 0), (b"a", None, 1))
    )
    assert dict(session.subscriptions) == {}
    session.forget(None, b"a")

    session.note(first)
    assert session.subscriptions == {(None, b"a"): first}
    session.note(again)
    session.forget(b"g", b"a")
    assert session.subscriptions == {(None, b"a"): again}
    for each in (other, shared, first):
        session.note(each)
    assert session.subscriptions == {(None, b"a"): first, (None, b"b"): other, (b"g", b"a"): shared}
    for group, filter in list(session.subscriptions):
        session.forget(group, filter)
    assert dict(session.subscriptions) == {}
    session.note(shared)
    session.forget(b"g", b"a")
    assert dict(session.subscriptions) == {}
    session.note(first)
    session.forget_all()
    assert dict(session.subscriptions) == {}
