"""The queue driver `redis`: what the contract does not say - an emptied server, one that keeps nothing, one that is full, keys and records."""

from __future__ import annotations

import pytest

from iothub.base.errors import BackendError, ConflictError, NotFoundError
from iothub.records.owner import Owner
from iothub.testing.queue_contract import GONE, TENANT, made, moved, one, positions, purged
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    Inbound,
    Move,
    MoveKind,
    Overflow,
    QueueLimits,
)
from iothub_services.queues.redis.reader_scripts import ID_KEPT_MS, INTEND, MOVE
from iothub_services.queues.redis.scripts import WRITERS_KEPT
from iothub_services.queues.redis.store import RedisQueues
from iothub_services.queues.redis.watch import LIFE_S, SETTINGS_S
from iothub_services.queues.routing import RoutingStore
from iothub_services.redis.calls import Call
from tests.support.servers.redis_queues import PREFIX, Fault, RedisHarness


@pytest.fixture
def harness() -> RedisHarness:
    return RedisHarness()


def lost_once(harness: RedisHarness, verb: str, fault: Fault, script: str = "") -> None:
    """Let the next call of that verb, or of a script with that text, be hit."""
    played = [fault]

    def hit(call: Call) -> Fault:
        is_meant = call.arguments[0] == verb and (call.script is None or script in call.script.text)
        return played.pop() if played and is_meant else Fault.NONE

    harness.fault = hit


def test_all_keys_of_a_queue_have_its_id_for_a_hash_tag(harness: RedisHarness) -> None:
    """So that a queue lies on one slot; the rest are the sets by tenant and by deadline."""
    store = harness.store()
    claim = made(store, 42)
    store.append([one(42, 1, qos=2, expires_at_ms=9, inbound=Inbound(42, claim.epoch, 1)), one(42, 2, qos=0)])
    store.append([one(42, 3, qos=2)])
    moved(store, MoveKind.RELEASE, 42, claim.epoch, 3)

    assert sorted(key.decode() for key in harness.redis.execute_command("KEYS", "*")) == [
        f"{PREFIX}:queue:{{42}}:d",
        f"{PREFIX}:queue:{{42}}:e",
        f"{PREFIX}:queue:{{42}}:i",
        f"{PREFIX}:queue:{{42}}:m",
        f"{PREFIX}:queue:{{42}}:p",
        f"{PREFIX}:queue:{{42}}:r",
        f"{PREFIX}:queue:{{42}}:w",
        f"{PREFIX}:queue:{{42}}:z",
        f"{PREFIX}:queues:due",
        f"{PREFIX}:queues:life",
        f"{PREFIX}:queues:of:{TENANT}",
        f"{PREFIX}:queues:tenants",
    ]
    store.drop(42)
    assert sorted(key.decode() for key in harness.redis.execute_command("KEYS", "*")) == [
        f"{PREFIX}:queues:life",
        f"{PREFIX}:queues:tenants",
    ]


def test_emptied_server_is_told_and_its_queues_stay_gone(harness: RedisHarness) -> None:
    """Nothing is made anew by itself: appends say `gone`, readers find no queue."""
    store = harness.store()
    claim = made(store, 1)
    store.append([one(1, 1), one(1, 2)])
    harness.redis.execute_command("FLUSHALL")

    assert store.append([one(1, 3)]) == [Appended((GONE,))]
    assert not moved(store, MoveKind.ACK, 1, claim.epoch, 1)
    with pytest.raises(NotFoundError):
        store.claim(1, b"again")
    assert harness.lost[0].startswith("Redis was emptied (FLUSHALL")
    assert store.tenant_usage(TENANT) == (0, 0)
    made(store, 2)
    assert store.append([one(2, 1)]) == [Appended((1,))]
    harness.clock.advance(LIFE_S)
    store.idle()
    assert len(harness.lost) == 1


def test_emptied_server_is_noticed_without_any_message(harness: RedisHarness) -> None:
    """The word that goes with everything is looked for every few seconds."""
    store = harness.store()
    made(store, 1)
    harness.redis.execute_command("FLUSHALL")
    store.idle()
    assert harness.lost == []

    harness.clock.advance(LIFE_S)
    store.idle()

    assert harness.lost[0].endswith("1 queues are gone, with all messages that waited in them")


def test_other_hub_notices_as_well(harness: RedisHarness) -> None:
    """Another word is as bad as none."""
    store, other = harness.store(1), harness.store(2)
    made(store, 1)
    other.open()
    harness.redis.execute_command("FLUSHALL")
    harness.clock.advance(LIFE_S)
    store.idle()
    other.idle()

    assert len(harness.lost) == 2


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("appendonly", "no", 'appendonly is "no"'),
        ("appendfsync", "everysec", 'appendfsync is "everysec"'),
        ("no-appendfsync-on-rewrite", "yes", "no-appendfsync-on-rewrite is on"),
        ("maxmemory-policy", "allkeys-lru", 'maxmemory-policy is "allkeys-lru"'),
    ],
)
def test_server_that_keeps_nothing_gets_nothing(harness: RedisHarness, name: str, value: str, why: str) -> None:
    """Also when its settings are changed under a running hub; the refusal says which setting."""
    store = harness.store()
    made(store, 1)
    harness.settings[name] = value
    harness.clock.advance(SETTINGS_S)

    with pytest.raises(BackendError, match=f"Redis does not keep queues safely: {why}") as caught:
        store.append([one(1, 1)])
    assert caught.value.retryable
    assert not caught.value.is_written
    with pytest.raises(BackendError, match=why):
        store.probe()
    with pytest.raises(BackendError, match=why):
        harness.store().open()

    harness.settings[name] = RedisHarness().settings[name]
    store.probe()
    assert store.append([one(1, 1)]) == [Appended((1,))]


def test_server_that_was_started_again_is_looked_at_before_it_gets_anything(harness: RedisHarness) -> None:
    """It may have been set by CONFIG SET alone, or be another one."""
    store = harness.store()
    made(store, 1)
    lost_once(harness, "EVALSHA", Fault.LOST_BEFORE, "XADD")
    batch = [one(1, 1)]
    with pytest.raises(BackendError, match="does not answer"), store.group():
        store.append(batch)
    harness.settings["appendfsync"] = "everysec"

    for _ in range(2):
        with pytest.raises(BackendError, match="does not keep queues safely"), store.group():
            store.append(batch)

    assert store.stats(1).messages == 0
    harness.settings["appendfsync"] = "always"
    with store.group():
        assert store.append(batch) == [Appended((1,))]


@pytest.mark.parametrize("verb", ["CONFIG", "INFO"])
def test_server_that_does_not_show_its_settings_gets_nothing(harness: RedisHarness, verb: str) -> None:
    """The right that is missing is named; what comes is held back until it is there, for a running hub, too."""
    store = harness.store()
    made(store, 1)
    harness.forbidden.add(verb)
    harness.clock.advance(SETTINGS_S)

    with pytest.raises(BackendError, match=r"NOPERM .* allow this user CONFIG GET and INFO") as caught:
        store.append([one(1, 1)])
    assert (caught.value.retryable, caught.value.is_written) == (True, False)
    with pytest.raises(BackendError, match="allow this user CONFIG GET and INFO"):
        harness.store().require_kept()

    harness.forbidden.clear()
    assert store.append([one(1, 1)]) == [Appended((1,))]


def test_memory_is_enough_when_somebody_says_so(harness: RedisHarness) -> None:
    """Without a file, but never with a policy that removes queues."""
    harness.settings |= {"appendonly": "no", "appendfsync": "no"}
    store = harness.store(is_memory_enough=True)
    made(store, 1)
    assert store.append([one(1, 1)]) == [Appended((1,))]

    harness.settings["maxmemory-policy"] = "allkeys-random"
    with pytest.raises(BackendError, match="maxmemory-policy"):
        harness.store(is_memory_enough=True).open()


def test_full_server_holds_back_what_comes_and_lets_readers_go_on(harness: RedisHarness) -> None:
    """Nothing of the batch is lost: it is done when there is memory again."""
    store = harness.store()
    claim = made(store, 1)
    store.append([one(1, 1)])
    lost_once(harness, "EVALSHA", Fault.FULL, "XADD")
    batch = [one(1, 2), one(1, 3)]
    with pytest.raises(BackendError, match="OOM") as caught, store.group():
        store.append(batch)
    assert (caught.value.retryable, caught.value.is_written) == (True, False)

    with store.group():
        assert store.append(batch) == [Appended((2,)), Appended((3,))]
    assert positions(store, 1, claim.epoch) == [1, 2, 3]


def test_hub_that_starts_beside_a_full_server_lets_readers_make_room(harness: RedisHarness) -> None:
    """What is there already is not written again: else nobody could acknowledge before there is memory."""
    ours = Owner("5f0c", "node", 1)
    store = harness.store(1)
    claim = made(store, 1)
    store.append([one(1, 1)])
    store.claim_store(ours)
    harness.fault = lambda call: Fault.FULL if call.arguments[0] == "SET" else Fault.NONE

    restarted = harness.store(2)

    assert restarted.claim_store(Owner("5f0c", "node", 2)) == ours
    assert moved(restarted, MoveKind.ACK, 1, claim.epoch, 1)
    assert restarted.stats(1).messages == 0


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.LATE])
def test_claim_and_creation_are_done_once(harness: RedisHarness, fault: Fault) -> None:
    """Their tokens tell a repeat from another one."""
    store = harness.store()
    store.open()
    lost_once(harness, "EVALSHA", fault, "'made', ARGV")
    with pytest.raises(BackendError):
        store.create(TENANT, 1, QueueLimits())
    store.create(TENANT, 1, QueueLimits())
    lost_once(harness, "EVALSHA", fault, "'token', ARGV")
    with pytest.raises(BackendError):
        store.claim(1, b"one")

    assert store.claim(1, b"one").epoch == 1
    with pytest.raises(ConflictError):
        store.create(TENANT, 1, QueueLimits())


def test_group_that_is_repeated_creates_and_moves_once(harness: RedisHarness) -> None:
    """A creation before something that failed is no conflict, an acknowledgement is not done twice."""
    store = harness.store()
    claim = made(store, 1)
    store.append([one(1, 1)])
    finish, publish = Move(MoveKind.FINISH_INBOUND, 1, claim.epoch, 5), one(1, 2, inbound=Inbound(1, claim.epoch, 5))
    moved(store, MoveKind.RECORD_INBOUND, 1, claim.epoch, 5)
    lost_once(harness, "EVALSHA", Fault.LOST_BEFORE, "passes_out_of_memory()\n\nlocal function acknowledge(upto)\n")
    answers = []
    for _ in range(4):
        try:
            with store.group():
                store.create(TENANT, 2, QueueLimits())
                answers = [store.apply([finish]), store.append([publish])]
                if len(harness.lost) == 0:
                    harness.lost.append("the first time")
                    raise BackendError("what comes behind has failed", retryable=True)
            break
        except BackendError:
            continue

    assert answers == [[True], [Appended((2,))]]
    assert store.claim(1, b"later").inbound == (5,)


def test_call_of_a_reader_that_comes_late_undoes_nothing(harness: RedisHarness) -> None:
    """Its hub has given it up, made it again and gone on: what may have been sent stays reserved, what is finished stays so."""
    store = harness.store()
    claim = made(store, 1)
    made(store, 2)
    inbound = Inbound(1, claim.epoch, 5)
    moved(store, MoveKind.RESERVE, 1, claim.epoch, 3)
    store.append([one(2, 1, qos=2, inbound=inbound)])
    late = [call for call in harness.calls if call.script is not None and call.script in (MOVE, INTEND)]
    moved(store, MoveKind.RESERVE, 1, claim.epoch, 9)
    moved(store, MoveKind.FINISH_INBOUND, 1, claim.epoch, 5)

    assert harness.ask(late) == [b"late"] * 3

    other = harness.store(2)
    claim = other.claim(1, b"other")
    assert (claim.reserved, claim.inbound) == (9, ())
    assert moved(other, MoveKind.RESERVE, 1, claim.epoch, 4)
    assert other.append([one(2, 2, qos=2, inbound=Inbound(1, claim.epoch, 5))]) == [Appended((2,))]


def test_second_hub_sees_queues_and_sums(harness: RedisHarness) -> None:
    """What the first one made and stored, from its start on or when it is asked for it."""
    store = harness.store(1)
    claim = made(store, 1)
    store.append([one(1, 1, body=b"abc")])
    other = harness.store(2)
    other.open()
    assert other.tails([1, 9]) == {1: 1}
    assert other.tenant_usage(TENANT) == (1, 3)
    made(store, 2)
    assert other.append([one(2, 2), one(1, 3)]) == [Appended((1,)), Appended((2,))]
    assert positions(store, 1, claim.epoch) == [1, 2]
    with pytest.raises(ConflictError):
        other.create(TENANT, 2, QueueLimits())


def test_queue_is_gone_only_where_writes_go(harness: RedisHarness) -> None:
    """A server that reads are still asked of may be behind: a replica by now, or a master that was replaced."""
    behind = RedisHarness()
    harness.redis.execute_command("SET", f"{PREFIX}:queues:life", "word")
    behind.redis.execute_command("SET", f"{PREFIX}:queues:life", "word")
    store = RedisQueues(harness.ask, behind.ask, PREFIX, 1, harness.clock)
    store.open()
    other = harness.store(2)
    claim = made(other, 1)

    assert store.append([one(1, 1)]) == [Appended((1,))]
    assert positions(other, 1, claim.epoch) == [1]
    assert (store.tails([1]), store.existing([1, 2])) == ({}, {1})


def test_queue_is_with_its_driver_though_reads_are_behind(harness: RedisHarness) -> None:
    """With several drivers: otherwise it would be taken for lost, and its messages would be acknowledged and stored nowhere."""
    behind = RedisHarness()
    for server in (harness, behind):
        server.redis.execute_command("SET", f"{PREFIX}:queues:life", "word")
    store = RoutingStore(
        {"redis": RedisQueues(harness.ask, behind.ask, PREFIX, 1, harness.clock), "file": MemoryQueues()}, "file"
    )
    made(harness.store(2), 1)

    assert store.append([one(1, 1)]) == [Appended((1,))]


@pytest.mark.parametrize("verb", ["GET", "HMGET"])
def test_look_that_fails_has_written_nothing(harness: RedisHarness, verb: str) -> None:
    """So the publisher may be told that, when it is given up."""
    store = harness.store()
    made(harness.store(2), 1)
    store.open()
    made(harness.store(3), 2)
    harness.clock.advance(LIFE_S)
    lost_once(harness, verb, Fault.LOST_AFTER)

    with pytest.raises(BackendError, match="does not answer") as caught, store.group():
        store.append([one(2, 1)])

    assert (caught.value.retryable, caught.value.is_written) == (True, False)


def test_only_so_many_writers_are_remembered(harness: RedisHarness) -> None:
    """The oldest goes: hubs that are long gone repeat nothing."""
    made(harness.store(1000), 1)
    for incarnation in range(1, WRITERS_KEPT + 3):
        harness.clock.advance(1)
        harness.store(incarnation).append([one(1, incarnation)])

    writers = harness.redis.execute_command("HKEYS", f"{PREFIX}:queue:{{1}}:w")
    assert sorted(map(int, writers)) == list(range(3, WRITERS_KEPT + 3))


def test_message_id_is_known_a_day_beyond_its_record(harness: RedisHarness) -> None:
    """A publisher's hub may be away that long with an intent open."""
    store = harness.store()
    claim = made(store, 1)
    store.append([one(1, 1, qos=2), one(1, 2, qos=2)])
    moved(store, MoveKind.ACK, 1, claim.epoch, 2)
    harness.clock.advance(ID_KEPT_MS / 1000 - 1)
    assert store.append([one(1, 1, qos=2)]) == [Appended((1,))]

    harness.clock.advance(2)
    claim = store.claim(1, b"later")

    assert store.append([one(1, 1, qos=2)]) == [Appended((3,))]
    assert positions(store, 1, claim.epoch) == [3]


def test_claim_forgets_no_message_id_before_its_time(harness: RedisHarness) -> None:
    store = harness.store()
    claim = made(store, 1)
    store.append([one(1, 1, qos=2)])
    moved(store, MoveKind.ACK, 1, claim.epoch, 1)
    harness.clock.advance(ID_KEPT_MS / 1000 - 1)

    store.claim(1, b"again")

    assert store.append([one(1, 1, qos=2)]) == [Appended((1,))]


def test_purge_takes_many_records_piece_by_piece(harness: RedisHarness) -> None:
    """More than one call removes; what the ids were of is forgotten, remembered ones stay."""
    store = harness.store()
    claim = made(store, 1, QueueLimits(0, 0))
    store.append([one(1, 0, qos=2)])
    moved(store, MoveKind.ACK, 1, claim.epoch, 1)
    store.append([one(1, number, qos=number % 3) for number in range(1, 1302)])

    assert purged(store, 1) == 1301
    assert store.tenant_usage(TENANT) == (0, 0)
    assert store.append([one(1, 2, qos=2), one(1, 0, qos=2)]) == [Appended((1303,)), Appended((1,))]


def test_purge_that_comes_late_takes_nothing_that_came_since(harness: RedisHarness) -> None:
    """It was given up, made again and answered meanwhile."""
    store = harness.store()
    claim = made(store, 1)
    store.append([one(1, 1)])
    assert store.purge(1) == (1, 0)
    late = harness.calls[-1]
    store.append([one(1, 2)])

    harness.ask([late])

    assert positions(store, 1, claim.epoch) == [2]


@pytest.mark.parametrize("is_repeated", [False, True])
def test_position_is_never_given_again_after_redis_went_back(harness: RedisHarness, is_repeated: bool) -> None:
    """A replica that was behind has become the master: what a reader has passed is not given to another message; somebody is told."""
    store = harness.store()
    claim = made(store, 1)
    store.append([one(1, 1), one(1, 2), one(1, 3)])
    harness.redis.execute_command("XDEL", f"{PREFIX}:queue:{{1}}:r", "2-0", "3-0")
    harness.redis.execute_command("HSET", f"{PREFIX}:queue:{{1}}:m", "tail", 1, "messages", 1, "bytes", 2)
    batch = [one(1, 4), one(1, 5, qos=2)]
    if is_repeated:
        lost_once(harness, "EVALSHA", Fault.LOST_AFTER, "XADD")
        with pytest.raises(BackendError), store.group():
            store.append(batch)

    with store.group():
        assert store.append(batch) == [Appended((4,)), Appended((5,))]

    assert positions(store, 1, claim.epoch) == [1, 4, 5]
    assert len(harness.back) == 1
    assert "queue 1 stood at position 1, and had given later ones" in harness.back[0]
    assert store.append([one(1, 6)]) == [Appended((6,))]
    assert len(harness.back) == 1


def test_position_that_a_claim_has_seen_is_not_given_again(harness: RedisHarness) -> None:
    """Another hub has appended, this one has heard of it by its claim alone."""
    other, store = harness.store(1), harness.store(2)
    made(other, 1)
    other.append([one(1, 1), one(1, 2), one(1, 3)])
    claim = store.claim(1, b"next")
    harness.redis.execute_command("XDEL", f"{PREFIX}:queue:{{1}}:r", "2-0", "3-0")
    harness.redis.execute_command("HSET", f"{PREFIX}:queue:{{1}}:m", "tail", 1, "messages", 1, "bytes", 2)

    assert store.append([one(1, 4)]) == [Appended((4,))]

    assert positions(store, 1, claim.epoch) == [1, 4]
    assert len(harness.back) == 1


def test_large_batch_goes_in_several_calls_in_order(harness: RedisHarness) -> None:
    """By count and by bytes: no script runs long."""
    store = harness.store()
    claim = made(store, 1, QueueLimits(0, 0))
    assert store.append([one(1, number) for number in range(1, 701)]) == [Appended((at,)) for at in range(1, 701)]
    large = [one(1, number, body=b"%03d" % number + b"x" * (300 << 10)) for number in range(8)]
    assert [answer.positions[0] for answer in store.append(large)] == list(range(701, 709))

    records = store.read(1, claim.epoch, 700, 100, 1 << 30).records

    assert [record.body[:3] for record in records] == [b"%03d" % number for number in range(8)]


def test_drop_policies_look_only_as_far_as_they_must(harness: RedisHarness) -> None:
    """Stored QoS 0 is found wherever it lies, several go for one large message."""
    store = harness.store()
    made(store, 1, QueueLimits(0, 100, Overflow.DROP_QOS0_FIRST))
    store.append([one(1, number, qos=0 if number % 2 else 1, body=b"x" * 10) for number in range(1, 11)])

    assert store.append([one(1, 11, body=b"y" * 25)]) == [Appended((11,), dropped=((1, 1), (1, 3), (1, 5)))]


def test_intent_that_cannot_be_read_stays_open(harness: RedisHarness) -> None:
    """It was not answered, so the client sends the message again. It counts as damaged, like any other record."""
    store = harness.store()
    claim = made(store, 1)
    made(store, 2)
    harness.redis.execute_command("HSET", f"{PREFIX}:queue:{{1}}:i", 7, b"o" + b"k" * 16 + b"\x09")

    claim = store.claim(1, b"x")
    assert claim.inbound == ()
    ((store_name, key, _),) = harness.damaged_records
    assert (store_name, key) == ("queues", f"tenant {TENANT}, QoS 2 message 7 from the client of queue 1")
    repeated = Append(b"n" * 16, b"again", 0, (Delivery(2, 2),), Inbound(1, claim.epoch, 7))
    assert store.append([repeated]) == [Appended((1,))]
    assert store.claim(1, b"y").inbound == (7,)


def test_ids_that_messages_get_rise_and_carry_their_writer(harness: RedisHarness) -> None:
    """Microseconds, then the writer; never the same twice, even if the clock stands: who finishes messages goes by their order."""
    store = harness.store(9)
    made(store, 1)
    for packet_id in (1, 2):
        store.append([Append(b"", b"body", 0, (), Inbound(1, 1, packet_id))])

    stored = harness.redis.execute_command("HMGET", f"{PREFIX}:queue:{{1}}:i", 1, 2)

    now_us = int(harness.clock.wall() * 1_000_000)
    assert stored == [b"r" + (now_us + number).to_bytes(8) + (9).to_bytes(8) for number in (0, 1)]


def test_hints_of_deadlines_are_put_right(harness: RedisHarness) -> None:
    """A queue whose record was acknowledged before its time is looked at once, and not again."""
    store = harness.store()
    claim = made(store, 1)
    store.append([one(1, 1, expires_at_ms=10), one(1, 2, expires_at_ms=500)])
    moved(store, MoveKind.ACK, 1, claim.epoch, 1)
    due = f"{PREFIX}:queues:due"
    assert harness.redis.execute_command("ZSCORE", due, 1) == b"10"

    assert store.expire(20, 10).removed == ()
    assert harness.redis.execute_command("ZSCORE", due, 1) == b"500"
    assert len(store.expire(500, 10).removed) == 1
    store.expire(501 + 60_000, 10)
    assert harness.redis.execute_command("ZSCORE", due, 1) is None


def test_many_queues_expire_in_the_order_of_their_deadlines(harness: RedisHarness) -> None:
    """More queues than are looked at at once."""
    store = harness.store()
    count = 300
    for queue_id in range(1, count + 1):
        store.create(TENANT, queue_id, QueueLimits())
    store.append(
        [one(queue_id, queue_id, expires_at_ms=1 + (queue_id * 7) % count) for queue_id in range(1, count + 1)]
    )

    found, after = [], None
    while True:
        expired = store.expire(count, 64) if after is None else store.expire(count, 64, after)
        found += [1 + (record.queue_id * 7) % count for record in expired.removed]
        after = expired.after
        if after is None:
            break

    assert found == sorted(found)
    assert len(found) == count
