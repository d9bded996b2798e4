"""Persistent sessions: caught up and behind, what is durable before what is sent, claims, DUP, the durable head."""

from __future__ import annotations

from iothub.base.reasons import Drop
from iothub.engine.limits import PlaneLimits, TenantLimits
from iothub.engine.message import Message
from iothub.testing.engine import Bench, Client, ManualStore, ack, packets, publish


def payloads(data: bytes) -> list[bytes]:
    return [body[-1:] for header, body in packets(data) if header >> 4 == 3]


def waiting(store: ManualStore) -> list[str]:
    """The kinds of operations that the store was asked for and has not done."""
    return [operation[0] for operation in store.waiting]


def persistent(bench: Bench, maximum: int = 20, **options: object) -> Client:
    client = bench.client("s", queue_id=7, receive_maximum=maximum, is_kept=True, **options)
    client.subscribe(b"q", 2)
    return client


def test_nothing_is_sent_before_it_is_stored_and_reserved() -> None:
    """PUBLISH -> append; commit -> PUBACK and notification; "may have been sent" is durable before the first send."""
    bench = Bench()
    subscriber = persistent(bench)
    bench.store.commit_all()
    subscriber.take()
    publisher = bench.client("p")

    assert publisher.send(publish(b"q", b"x", 1, 1)) == b""
    assert waiting(bench.store) == ["append"]
    bench.store.commit()
    assert publisher.take() == ack(0x40, 1)
    assert subscriber.take() == b""
    assert waiting(bench.store) == ["reserve"]
    bench.store.commit()

    assert subscriber.take() == publish(b"q", b"x", 1, 1)


def test_a_caught_up_session_reads_nothing_from_the_store() -> None:
    """After the first page everything comes with the commit's notification."""
    bench = Bench()
    subscriber = persistent(bench)
    bench.settle()
    publisher = bench.client("p", inbound_maximum=100)

    for number in range(1, 20):
        publisher.send(publish(b"q", b"x", 1, number))
        assert "read" not in waiting(bench.store)
        bench.store.commit_all()

    assert len(packets(subscriber.take()[4:])) == 19


def test_a_full_window_is_served_from_memory_then_from_pages() -> None:
    """Beyond the backlog's bound the session is behind; pages bring the rest, in order, nothing twice."""
    bench = Bench(PlaneLimits(page_messages=4))
    bench.tenant.limits = TenantLimits(backlog_messages=3)
    subscriber = persistent(bench, 1)
    bench.settle()
    subscriber.take()
    publisher = bench.client("p")
    for number in range(1, 10):
        publisher.send(publish(b"q", b"%d" % number, 1, number))
        bench.store.commit_all()

    assert subscriber.session.is_behind
    seen = payloads(subscriber.take())
    for position in range(1, 10):
        seen += payloads(subscriber.send(ack(0x40, position)))
        bench.settle()
        seen += payloads(subscriber.take())

    assert seen == [b"%d" % number for number in range(1, 10)]
    assert not subscriber.session.is_behind
    assert bench.tenant.buffered_bytes == 0


def test_offline_messages_come_after_the_claim() -> None:
    """Stored while nobody is there, sent in order with DUP 0 when somebody comes."""
    bench = Bench()
    persistent(bench).drop()
    bench.settle()
    publisher = bench.client("p")
    for number in (1, 2, 3):
        publisher.send(publish(b"q", b"%d" % number, 1, number))
    bench.settle()
    assert publisher.take() == ack(0x40, 1) + ack(0x40, 2) + ack(0x40, 3)

    subscriber = persistent(bench)
    bench.settle()

    assert [header for header, _ in packets(subscriber.take()[4:])] == [0x32] * 3


def test_a_reconnect_repeats_with_dup_and_the_original_identifier() -> None:
    """[MQTT-4.4.0-1]; what was never sent has DUP 0."""
    bench = Bench()
    subscriber = persistent(bench, 2)
    bench.settle()
    publisher = bench.client("p")
    for number in (1, 2, 3):
        publisher.send(publish(b"q", b"%d" % number, 1, number))
    bench.settle()
    subscriber.drop()
    bench.settle()

    again = persistent(bench)
    bench.settle()

    assert packets(again.take()[4:]) == [
        (0x3A, b"\0\x01q\0\x011"),
        (0x3A, b"\0\x01q\0\x022"),
        (0x32, b"\0\x01q\0\x033"),
    ]


def test_after_a_crash_everything_reserved_may_have_been_sent() -> None:
    """DUP 1 up to `reserved`; a clean end lowers it to what was sent."""
    store = ManualStore()
    bench = Bench(store=store)
    subscriber = persistent(bench, 1)
    bench.settle()
    publisher = bench.client("p")
    for number in (1, 2):
        publisher.send(publish(b"q", b"%d" % number, 1, number))
    bench.settle()
    subscriber.take()
    store.crash()
    crashed = persistent(Bench(store=store))
    crashed.bench.settle()
    assert [header for header, _ in packets(crashed.take()[4:])] == [0x3A, 0x3A]

    bench = crashed.bench
    bench.client("p").send(publish(b"q", b"3", 1, 1))
    crashed.drop()
    bench.plane.settle_reservations(list(bench.tenant.sessions.awake.values()))
    bench.settle()
    clean = persistent(Bench(store=store))
    clean.bench.settle()

    assert [header for header, _ in packets(clean.take()[4:])] == [0x3A, 0x3A, 0x32]


def test_what_may_have_been_sent_does_not_expire() -> None:
    """Expired and never sent: dropped, counted; sent before: sent again, with nothing left."""
    bench = Bench()
    subscriber = persistent(bench, 1, version=5)
    bench.settle()
    publisher = bench.client("p", version=5)
    for number in (1, 2):
        publisher.send(publish(b"q", b"%d" % number, 1, number, properties=b"\x02\0\0\0\x0a"))
    bench.settle()
    subscriber.drop()
    bench.pass_time(20)

    again = persistent(bench, 5, version=5)
    bench.settle()

    assert packets(again.take()[4:]) == [(0x3A, b"\0\x01q\0\x01\x05\x02\0\0\0\x001")]
    assert bench.tenant.counters.dropped == {Drop.EXPIRED: 1}
    assert again.session.window is not None
    assert again.session.window.taken == 2


def test_pubrel_waits_for_the_disk_and_is_repeated() -> None:
    """PUBREC is durable before PUBREL [MQTT-4.3.3-4]; after a crash PUBREL comes, never PUBLISH; 0x92 is success."""
    store = ManualStore()
    bench = Bench(store=store)
    subscriber = persistent(bench)
    bench.settle()
    bench.client("p").send(publish(b"q", b"x", 2, 1))
    bench.settle()
    subscriber.take()

    assert subscriber.send(ack(0x50, 1)) == b""
    store.commit()
    assert subscriber.take() == ack(0x62, 1)
    store.crash()
    again = persistent(Bench(store=store), version=5)
    again.bench.settle()

    assert again.take()[4:] == ack(0x62, 1)
    assert again.send(ack(0x70, 1, 0x92)) == b""
    again.bench.settle()
    assert store.queue(7).head == 1
    assert store.queue(7).released == set()


def test_the_durable_head_moves_in_batches() -> None:
    """At once after a batch of positions, else with the tick."""
    bench = Bench(PlaneLimits(ack_batch=3))
    subscriber = persistent(bench)
    bench.settle()
    publisher = bench.client("p")
    for number in range(1, 6):
        publisher.send(publish(b"q", b"x", 1, number))
    bench.settle()

    subscriber.send(ack(0x40, 1) + ack(0x40, 2))
    assert waiting(bench.store) == []
    subscriber.send(ack(0x40, 3))
    assert waiting(bench.store) == ["ack"]
    subscriber.send(ack(0x40, 4))
    bench.store.commit_all()
    assert bench.store.queue(7).head == 3
    bench.settle()

    assert bench.store.queue(7).head == 4


def test_the_span_counts_from_the_durable_head() -> None:
    """No identifier names two positions, however slow the disk is."""
    bench = Bench()
    window = persistent(bench).session.window
    assert window is not None

    window.restore(0, 0, 0, ())
    window.taken = 65533
    assert window.is_within_span()
    window.taken = 65534

    assert not window.is_within_span()


def test_an_answer_to_an_earlier_connection_is_not_taken_for_a_new_one() -> None:
    """A page that was asked for before the claim says nothing about what comes after it."""
    bench = Bench()
    persistent(bench).drop()
    bench.settle()
    publisher = bench.client("p")
    for number in (1, 2, 3):
        publisher.send(publish(b"q", b"%d" % number, 1, number))
    bench.settle()
    persistent(bench).drop()
    assert "read" in waiting(bench.store)

    subscriber = persistent(bench)
    bench.settle()

    assert payloads(subscriber.take()) == [b"1", b"2", b"3"]


def test_a_lost_notification_strands_nothing() -> None:
    """Whoever sees a tail that the session has not heard of makes it read."""
    bench = Bench()
    subscriber = persistent(bench)
    bench.settle()
    rows = bench.store.queue(7)
    other = Bench(store=ManualStore())
    other.store.rows = bench.store.rows
    persistent(other)
    other.client("p").send(publish(b"q", b"x", 1, 1))
    other.store.commit()

    bench.plane.announce(subscriber.session, rows.tail)
    rows.epoch = subscriber.session.epoch
    bench.settle()

    assert payloads(subscriber.take()) == [b"x"]


def test_qos0_goes_past_the_queue_or_nowhere() -> None:
    """Online: directly; offline: dropped by name, unless the tenant stores it."""
    bench = Bench()
    subscriber = persistent(bench)
    bench.settle()
    subscriber.take()
    publisher = bench.client("p")

    publisher.send(publish(b"q", b"1"))
    assert payloads(subscriber.take()) == [b"1"]
    subscriber.drop()
    publisher.send(publish(b"q", b"2"))
    assert bench.tenant.counters.dropped == {Drop.QOS0_OFFLINE: 1}
    bench.tenant.limits = TenantLimits(store_qos0=True)
    publisher.send(publish(b"q", b"3"))
    bench.settle()
    again = persistent(bench)
    bench.settle()

    assert packets(again.take()[4:]) == [(0x30, b"\0\x01q3")]


def test_retained_messages_go_through_the_queue() -> None:
    """A persistent session has one source of identifiers; RETAIN is kept [MQTT-3.3.1-8]."""
    bench = Bench()
    subscriber = persistent(bench)
    bench.settle()
    subscriber.take()
    subscription = subscriber.subscribe(b"r/#", 1)

    bench.plane.send_retained(
        subscriber.session, subscription, [Message(b"r/1", b"x", 1, True), Message(b"r/2", b"y", 0, True)]
    )
    assert subscriber.take() == publish(b"r/2", b"y", retain=True)
    bench.settle()

    assert subscriber.take() == publish(b"r/1", b"x", 1, 1, retain=True)


def test_a_claim_brings_what_was_inbound() -> None:
    """A known identifier gets only its PUBREC, on a new hub too [MQTT-4.3.3-10]."""
    store = ManualStore()
    bench = Bench(store=store)
    publisher = bench.client("p", queue_id=9)
    publisher.send(publish(b"q", b"x", 2, 5))
    store.commit_all()
    store.crash()
    bench = Bench(store=store)
    subscriber = bench.client("t")
    subscriber.subscribe(b"q", 2)

    again = bench.client("p", queue_id=9)

    assert again.send(publish(b"q", b"x", 2, 5, dup=True)) == ack(0x50, 5)
    assert subscriber.take() == b""


def repeated_elsewhere(bench: Bench) -> tuple[Client, Client]:
    """A publisher of 5.0 whose PUBLISH waits for the store while it has connected and sent it again; returns both connections."""
    kept = bench.client("kept", queue_id=7)
    kept.subscribe(b"a", 2)
    bench.settle()
    left = bench.client("p", queue_id=9, version=5)
    bench.settle()
    left.send(publish(b"a", b"x", 2, 1, properties=b""))
    left.drop()
    now = bench.client("p", queue_id=9, version=5)
    now.send(publish(b"a", b"x", 2, 1, dup=True, properties=b""))
    return left, now


def test_storage_keeps_the_identifier_of_a_repeat_when_the_first_attempt_fails() -> None:
    """Else PUBREL finds nothing, the identifier stays on disk, and the next message under it is taken for a repeat, and lost."""
    bench = Bench()
    _, now = repeated_elsewhere(bench)
    bench.store.fails = False
    bench.store.commit(1)
    bench.store.fails = None
    bench.settle()
    assert now.take() == ack(0x50, 1)

    now.send(ack(0x62, 1))
    bench.settle()
    assert now.take() == ack(0x70, 1)
    assert not bench.store.queue(9).inbound
    now.send(publish(b"a", b"y", 2, 1, properties=b""))
    bench.settle()

    assert [record.message.payload for record in bench.store.queue(7).records.values()] == [b"x", b"y"]


def test_storage_delivers_nothing_twice_when_nobody_heard_of_the_failure() -> None:
    """Without an answer the client sends it again: transient receivers have it already [MQTT-4.3.3-10]."""
    bench = Bench()
    online = bench.client("online")
    online.subscribe(b"a", 2)
    bench.client("kept", queue_id=7).subscribe(b"a", 2)
    bench.settle()
    left = bench.client("p", queue_id=9, version=5)
    bench.settle()
    left.send(publish(b"a", b"x", 2, 1, properties=b""))
    left.drop()
    bench.store.fails = False
    bench.store.commit()
    bench.store.fails = None
    now = bench.client("p", queue_id=9, version=5)
    now.send(publish(b"a", b"x", 2, 1, dup=True, properties=b""))
    bench.settle()

    assert now.take() == ack(0x50, 1)
    assert len(packets(online.take())) == 1
    assert bench.store.queue(7).tail == 1


def test_queue_waits_while_this_hub_may_be_gone_for_the_others() -> None:
    """Its client may be at another hub: nothing leaves, whether notified, read as a page or waiting for an acknowledgement. Later all does."""
    bench = Bench()
    subscriber, publisher = persistent(bench, maximum=1), bench.client("p", inbound_maximum=100)
    bench.settle()
    for number in (1, 2):
        publisher.send(publish(b"q", b"%d" % number, 1, number))
    bench.store.commit_all()
    assert payloads(subscriber.take()) == [b"1"]

    publisher.send(publish(b"q", b"3", 1, 3))
    bench.plane.hold_from(bench.clock.monotonic())
    bench.settle()
    assert payloads(subscriber.send(ack(0x40, 1))) == []
    bench.pass_time(0.1)
    bench.settle()
    assert payloads(subscriber.take()) == []

    bench.plane.hold_from(bench.clock.monotonic() + 10)
    bench.pass_time(0.1)
    assert payloads(subscriber.take()) == [b"2"]
    assert payloads(subscriber.send(ack(0x40, 2))) == [b"3"]
