"""Other hubs as receivers and as senders: who gets a copy over a link, and who gets one of what a link brings."""

from __future__ import annotations

from dataclasses import dataclass, field

from iothub.base.reasons import Drop
from iothub.engine.limits import PlaneLimits, TenantLimits
from iothub.engine.message import Message
from iothub.engine.outbox import StoredPublish
from iothub.engine.router import Subscription
from iothub.engine.state import Session
from iothub.testing.engine import Bench, ack, packets, publish

PUBACK = ack(0x40, 1)
EVERYTHING, QOS0_ONLY = 2, 0


@dataclass(eq=False)
class Peer:
    """The `control` of another hub's session."""

    is_full: bool = False
    sent: list[Message] = field(default_factory=list)

    def send(self, _tenant: object, message: Message) -> None:
        self.sent.append(message)

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.sent]


@dataclass
class Interest:
    """What is announced to other hubs of the subscriptions here."""

    changes: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)

    def replace(self, before: Subscription | None, after: Subscription | None) -> None:
        self.changes.append((before and before.filter, after and after.filter))


@dataclass
class Control:
    """The control plane's half of a session."""

    is_online_elsewhere: bool


def peer(bench: Bench, topic_filter: bytes = b"t/#", needs: int = EVERYTHING) -> Peer:
    control = Peer()
    session = Session(bench.tenant, "", "peer:b", False)
    session.is_sink = session.is_peer = True
    session.control = control
    bench.tenant.router.subscribe(Subscription(session, topic_filter, qos=needs, retain_as_published=True))
    return control


def arrived(bench: Bench, topic: bytes, payload: bytes, qos: int = 0, **options: object) -> None:
    bench.plane.publish_arrived(bench.tenant, [Message(topic, payload, qos, **options)])  # type: ignore[arg-type]
    bench.plane.end_batch()


def appended(bench: Bench) -> list[StoredPublish]:
    return [operation[1] for operation in bench.store.waiting if operation[0] == "append"]


# --- to another hub


def test_a_peer_gets_each_message_once_and_holds_no_acknowledgement_back() -> None:
    """The PUBACK does not wait, nothing is stored, and the tenant stays on the fast path."""
    bench = Bench()
    other = peer(bench)
    client = bench.client("p", version=5)

    answer = client.send(publish(b"t/1", b"a", 1, 1, properties=b"") + publish(b"x", b"b", 1, 2, properties=b""))

    assert packets(answer) == [
        (0x40, b"\x00\x01"),
        (0x40, b"\x00\x02\x10"),
    ]  # the first has a receiver, the second none
    assert other.payloads() == [b"a"]
    assert (appended(bench), bench.tenant.sinks) == ([], 0)


def test_overlapping_filters_of_a_peer_are_one_copy() -> None:
    """The peer matches again by itself."""
    bench = Bench()
    other = peer(bench)
    session = bench.tenant.router.match(b"t/1").targets[0].session
    bench.tenant.router.subscribe(Subscription(session, b"t/1", qos=QOS0_ONLY))

    bench.client("p").send(publish(b"t/1", b"a", 1, 1))

    assert other.payloads() == [b"a"]


def test_what_queues_bring_does_not_go_to_a_peer_as_well() -> None:
    """A peer whose clients have queues for this filter needs what has QoS 0, and nothing else."""
    bench = Bench()
    other = peer(bench, needs=QOS0_ONLY)

    bench.client("p").send(publish(b"t/1", b"0") + publish(b"t/1", b"1", 1, 1) + publish(b"t/1", b"2", 2, 2))

    assert other.payloads() == [b"0"]
    assert bench.observer.drops == [(Drop.NO_SUBSCRIBERS, 1)] * 2


def test_a_repeated_qos_2_publish_goes_to_a_peer_once() -> None:
    """Receivers without a queue have it already [MQTT-4.3.3-10]."""
    bench = Bench()
    other = peer(bench)
    bench.client("s", queue_id=1).subscribe(b"t/1", 1)
    client = bench.client("p", queue_id=2)
    bench.settle()

    bench.store.fails = True
    client.send(publish(b"t/1", b"a", 2, 1))
    bench.settle()
    client = bench.client("p", queue_id=2)
    bench.store.fails = None
    client.send(publish(b"t/1", b"a", 2, 1, dup=True))
    bench.settle()

    assert other.payloads() == [b"a"]


def test_no_bound_of_a_fanout_leaves_a_peer_out() -> None:
    """A peer has a bound of its own for its clients."""
    bench = Bench()
    bench.tenant.limits = TenantLimits(fanout=1)
    for name in ("a", "b"):
        bench.client(name).subscribe(b"t/1")
    other = peer(bench)

    bench.client("p").send(publish(b"t/1", b"a"))

    assert other.payloads() == [b"a"]
    assert bench.tenant.counters.fanout == 1


def test_a_peer_gets_what_is_delivered_in_slices_at_once_and_in_order() -> None:
    """Receivers here wait for their slice, a link is one receiver."""
    bench = Bench(PlaneLimits(fanout_slice=4))
    for number in range(20):
        bench.client(f"c{number}").subscribe(b"t/1")
    other = peer(bench)

    bench.client("p").send(publish(b"t/1", b"a") + publish(b"t/2", b"b") + publish(b"t/1", b"c"))

    assert other.payloads() == [b"a", b"b", b"c"]


def test_a_full_link_holds_back_those_who_publish_over_it_and_nobody_else() -> None:
    """Neither QoS 0, which the link drops by itself, nor another topic; who waited goes on when the link drains."""
    bench = Bench()
    other = peer(bench)
    other.is_full = True
    bench.tenant.sinks += 1
    held, lossy, free = bench.client("held"), bench.client("lossy"), bench.client("free")

    held.send(publish(b"t/1", b"held", 1, 1))
    lossy.send(publish(b"t/1", b"lossy"))
    free.send(publish(b"x/1", b"free", 1, 1))

    assert [each.transport.is_paused for each in (held, lossy, free)] == [True, False, False]
    assert other.payloads() == [b"lossy"]
    other.is_full = False
    bench.tenant.sinks -= 1
    bench.pass_time(0.1)
    assert (held.transport.is_paused, held.take(), other.payloads()) == (False, PUBACK, [b"lossy", b"held"])


def test_a_full_link_that_needs_only_qos_0_holds_nobody_back() -> None:
    bench = Bench()
    other = peer(bench, needs=QOS0_ONLY)
    other.is_full = True
    bench.tenant.sinks += 1

    assert bench.client("p").send(publish(b"t/1", b"a", 1, 1)) == PUBACK


def test_a_peer_is_counted_by_no_rate_of_sinks() -> None:
    """Those are of streams."""
    bench = Bench()
    other = peer(bench)
    bench.tenant.sinks += 1

    class Spent:
        def take(self, _units: int, _now: float) -> float:
            return -1.0

    bench.tenant.sink_messages = Spent()
    bench.client("p").send(publish(b"t/1", b"a", 1, 1))

    assert other.payloads() == [b"a"]


def test_a_will_goes_to_a_peer() -> None:
    """What no client publishes right now is routed like the rest."""
    bench = Bench()
    other = peer(bench)
    codes: list[int] = []

    bench.plane.publish(bench.tenant, Message(b"t/1", b"will", 1), codes.append)

    assert (other.payloads(), codes) == ([b"will"], [0])


# --- from another hub


def test_what_arrives_is_given_to_those_who_need_no_queue() -> None:
    """Transient sessions by their own QoS, persistent ones only what has QoS 0 for them; nothing is stored or retained."""
    bench = Bench()
    clients = {
        "transient": bench.client("transient"),
        "lower": bench.client("lower"),
        "persistent": bench.client("persistent", queue_id=1),
        "persistent0": bench.client("persistent0", queue_id=2),
    }
    for name, qos in (("transient", 1), ("lower", 0), ("persistent", 1), ("persistent0", 0)):
        clients[name].subscribe(b"t/1", qos)
    bench.settle()

    arrived(bench, b"t/1", b"one", 1, retain=True)
    first = {name: [header for header, _ in packets(client.take())] for name, client in clients.items()}
    arrived(bench, b"t/1", b"zero")
    second = {name: [header for header, _ in packets(client.take())] for name, client in clients.items()}

    assert first == {"transient": [0x32], "lower": [0x30], "persistent": [], "persistent0": [0x30]}
    assert second == {name: [0x30] for name in clients}
    assert (appended(bench), bench.store.retained) == ([], {})


def test_retain_as_published_is_decided_where_the_message_arrives() -> None:
    """Each receiver has its own option [MQTT-3.3.1-13]."""
    bench = Bench()
    kept, plain = bench.client("kept"), bench.client("plain")
    kept.subscribe(b"t/1", retain_as_published=True)
    plain.subscribe(b"t/1")

    arrived(bench, b"t/1", b"a", retain=True)

    assert [packets(client.take())[0][0] for client in (kept, plain)] == [0x31, 0x30]


def test_no_local_holds_for_the_publisher_at_the_other_hub() -> None:
    """[MQTT-3.8.3-3]: the part of its subscriptions without No Local stays."""
    bench = Bench()
    own, other = bench.client("own"), bench.client("other")
    for client in (own, other):
        client.subscribe(b"t/1", no_local=True)
    own.subscribe(b"t/2", no_local=True)
    own.subscribe(b"t/+", identifier=0)

    arrived(bench, b"t/1", b"a", publisher=own.session, publisher_client_id="own")
    arrived(bench, b"t/2", b"b", publisher=own.session, publisher_client_id="own")

    assert [len(packets(client.take())) for client in (own, other)] == [2, 1]
    bench.plane.unsubscribe(own.session, None, b"t/+")
    arrived(bench, b"t/1", b"c", publisher=own.session, publisher_client_id="own")
    assert own.take() == b""


def test_what_arrives_goes_to_no_group_no_sink_and_no_peer() -> None:
    """All of them get it where it was published."""
    bench = Bench()
    member = bench.client("member")
    member.subscribe(b"t/1", 1, group=b"g")
    other = peer(bench)

    arrived(bench, b"t/1", b"a", 1)

    assert (member.take(), other.sent, appended(bench)) == (b"", [], [])


def test_what_arrives_for_nobody_is_no_drop() -> None:
    """A message that was on its way when its receiver left: the hub that routed it had a receiver then."""
    bench = Bench()
    bench.client("away", queue_id=1).subscribe(b"t/1")
    bench.tenant.sessions["away"].connection.lost(None)  # type: ignore[union-attr]
    bench.plane.end_batch()

    arrived(bench, b"t/1", b"a")

    assert bench.observer.drops == []


def test_the_bound_of_a_fanout_holds_for_what_arrives() -> None:
    bench = Bench()
    bench.tenant.limits = TenantLimits(fanout=2)
    clients = [bench.client(f"c{number}") for number in range(3)]
    for client in clients:
        client.subscribe(b"t/1")

    arrived(bench, b"t/1", b"a")

    assert [bool(client.take()) for client in clients] == [True, True, False]
    assert (bench.observer.drops, bench.tenant.counters.fanout) == ([(Drop.FANOUT, 1)], 2)


def test_what_arrives_for_very_many_is_sliced_in_order_and_bounded() -> None:
    """It overtakes nothing; beyond the bound it is dropped, as a link is always read."""
    bench = Bench(PlaneLimits(fanout_slice=3, sliced_receivers=16))
    clients = [bench.client(f"c{number}") for number in range(8)]
    for client in clients:
        client.subscribe(b"t/1")

    for payload in (b"1", b"2", b"3", b"4"):
        arrived_in_batch(bench, payload)
    bench.plane.end_batch()
    bench.pass_time(3)

    assert [body[-1:] for _, body in packets(clients[7].take())] == [b"1", b"2"]
    assert bench.observer.drops == [(Drop.QUEUE_FULL, 8)] * 2


def arrived_in_batch(bench: Bench, payload: bytes) -> None:
    bench.plane.publish_arrived(bench.tenant, [Message(b"t/1", payload)])


# --- QoS 0 of persistent sessions whose client another hub has


def test_qos_0_for_a_client_at_another_hub_is_neither_stored_nor_dropped_here() -> None:
    """The other hub delivers it. A shared group knows no other hub: its member's queue gets it."""
    for stores_qos0 in (False, True):
        bench = Bench()
        bench.tenant.limits = TenantLimits(store_qos0=stores_qos0)
        bench.tenant.interest = Interest()
        session = bench.plane.create_session(bench.tenant, "away", "away", is_persistent=True, queue_id=1)
        session.control = control = Control(is_online_elsewhere=True)
        bench.plane.subscribe(session, Subscription(session, b"t/1"))
        client = bench.client("p")

        client.send(publish(b"t/1", b"a"))
        assert (appended(bench), bench.observer.drops) == ([], [])
        control.is_online_elsewhere = False
        client.send(publish(b"t/1", b"b"))

        assert len(appended(bench)) == stores_qos0
        assert bench.observer.drops == ([] if stores_qos0 else [(Drop.QOS0_OFFLINE, 1)])


# --- what is announced to other hubs


def test_other_hubs_hear_of_subscriptions_of_transient_sessions() -> None:
    """From the subscribe to the end of the session; a replaced one is named."""
    bench = Bench()
    bench.tenant.interest = interest = Interest()
    client = bench.client("c")

    client.subscribe(b"a")
    client.subscribe(b"a", 1)
    client.subscribe(b"b")
    bench.plane.unsubscribe(client.session, None, b"b")
    bench.plane.discard(client.session)

    assert interest.changes == [(None, b"a"), (b"a", b"a"), (None, b"b"), (b"b", None), (b"a", None)]


def test_other_hubs_hear_of_a_persistent_session_while_it_is_online() -> None:
    """Offline it gets nothing but from its queue."""
    bench = Bench()
    bench.tenant.interest = interest = Interest()
    client = bench.client("c", queue_id=1)

    client.subscribe(b"a")
    client.drop()
    bench.plane.end_batch()
    bench.plane.subscribe(client.session, Subscription(client.session, b"b"))
    offline = list(interest.changes)
    bench.client("c", queue_id=1)

    assert offline == [(None, b"a"), (b"a", None)]
    assert interest.changes[2:] == [(None, b"a"), (None, b"b")]
    bench.plane.discard(client.session)
    assert interest.changes[4:] == [(b"a", None), (b"b", None)]
