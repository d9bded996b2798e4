"""What the contract does not ask of retained messages on HBase: versions of several hubs, late writes, the index of what expires."""

from __future__ import annotations

import pytest

from iothub.base.errors import BackendError
from iothub.records import keys
from iothub_services.hbase.pages import change_rows
from iothub_services.hbase.tables import Tables
from iothub_services.retained.hbase.store import BODY_COLUMN, META_COLUMN, HBaseRetained, _changed
from iothub_services.retained.port import RetainedBody, RetainedTopic, RetainedUsage, RetainedWrite
from tests.support.hbase.timed_gateway import TimedTable

TABLES = Tables("t")
KEY = keys.retained_key(1, b"a")
MINUTE_MS = 60_000


class Harness(TimedTable):
    """A table, and hubs that share it."""

    def __init__(self) -> None:
        super().__init__(TABLES.retained)
        self.one, self.other = HBaseRetained(self.caller, TABLES), HBaseRetained(self.caller, TABLES)

    @property
    def index(self) -> list[tuple[int, int, bytes]]:
        return [keys.expiry_of(key) for key in sorted(self.rows) if key.startswith(keys.tenant_key(0))]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_row_holds_the_message_at_the_time_of_its_version(harness: Harness) -> None:
    """Golden: what one sees with HBase's own tools."""
    harness.one.put([RetainedWrite(1, b"a", b"body", 9)])

    assert {key: {name: cell[0] for name, cell in cells.items()} for key, cells in harness.rows.items()} == {
        bytes.fromhex("00000000" + "0000000000000009" + "00000001") + b"a": {b"r:e": b"\1"},
        bytes.fromhex("00000001"): {b"r:v": (1).to_bytes(8)},
        bytes.fromhex("00000001") + b"a": {
            b"r:m": bytes.fromhex("01" + "0000000000000001" + "0000000000000009" + "00000004"),
            b"r:b": b"body",
        },
    }
    assert harness.rows[KEY][META_COLUMN][1] == harness.rows[KEY][BODY_COLUMN][1] == 1


def test_no_two_hubs_give_the_same_version(harness: Harness) -> None:
    """The counter is in the store."""
    given = [hub.put([RetainedWrite(1, b"a", b"x")] * 3) for hub in (harness.one, harness.other, harness.one)]

    assert given == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_late_write_of_another_hub_changes_nothing(harness: Harness) -> None:
    """It has the lower version, whether the newer one put or deleted."""
    late = [_changed(RetainedWrite(1, topic, b"late"), 1) for topic in (b"a", b"b")]
    harness.one.put([RetainedWrite(1, b"x", b"x")])
    harness.other.put([RetainedWrite(1, b"a", b"new"), RetainedWrite(1, b"b", None)])

    change_rows(harness.caller, TABLES.retained, {1: late})

    assert harness.one.fetch(1, [b"a", b"b"]) == [RetainedBody(b"a", 2, 0, b"new")]


def test_batch_is_written_together_and_each_topic_once(harness: Harness) -> None:
    """A call for each message would be a sync of HBase's log for each; the last write of a topic is the one that counts."""
    writes = [RetainedWrite(1, b"t/%d" % (number % 100), b"%d" % number, 9) for number in range(300)]
    writes += [RetainedWrite(1, b"t/7", None), RetainedWrite(2, b"a", b"x")]

    assert harness.one.put(writes) == [*range(1, 302), 1]

    verbs = [verb for verb, _ in harness.gateway.seen]
    assert {verb: verbs.count(verb) for verb in verbs} == {
        "atomicIncrement": 2,
        "mutateRows": 1,
        "mutateRowsTs": 1,
        "mutateRowTs": 1,
    }
    assert harness.one.fetch(1, [b"t/7", b"t/8"]) == [RetainedBody(b"t/8", 209, 9, b"208")]
    assert harness.rows[keys.retained_key(1, b"t/8")][META_COLUMN][1] == 301
    assert harness.one.put([RetainedWrite(1, b"t/7", b"new")]) == [302]
    assert harness.other.fetch(1, [b"t/7"]) == [RetainedBody(b"t/7", 302, 0, b"new")]


@pytest.mark.parametrize("verb", ["atomicIncrement", "mutateRowTs", "mutateRow"])
@pytest.mark.parametrize("fate", ["lost", "refused"])
def test_failed_put_is_repeated_with_new_versions(harness: Harness, verb: str, fate: str) -> None:
    """A hole in the versions does no harm; nothing is there twice."""
    harness.fates.append((verb, fate))
    write = RetainedWrite(1, b"a", b"x", 9)

    with pytest.raises(BackendError) as caught:
        harness.one.put([write])
    (version,) = harness.one.put([write])

    assert caught.value.retryable
    assert version == (1 if (verb, fate) == ("atomicIncrement", "refused") else 2)
    assert harness.other.fetch(1, [b"a"]) == [RetainedBody(b"a", version, 9, b"x")]


def test_large_bodies_are_fetched_in_pieces(harness: Harness) -> None:
    """Sizes are asked for first; what one call answers stays bounded."""
    harness.one.put([RetainedWrite(1, b"%d" % number, b"x" * 1_500_000) for number in range(7)])
    harness.gateway.seen.clear()

    found = harness.one.fetch(1, [b"6", b"0", b"nobody", b"3", b"1", b"2"])

    assert [body.topic for body in found] == [b"6", b"0", b"3", b"1", b"2"]
    asked = [len(arguments[2]) for verb, arguments in harness.gateway.seen if verb == "getRowsWithColumns"]
    assert asked == [6, 2, 2, 1]


def test_one_body_is_fetched_with_one_call(harness: Harness) -> None:
    harness.one.put([RetainedWrite(1, b"a", b"x")])
    harness.gateway.seen.clear()

    assert len(harness.one.fetch(1, [b"a"])) == 1
    assert harness.one.fetch(1, []) == []
    assert len(harness.gateway.seen) == 1


def test_message_with_a_new_time_is_not_expired_by_its_old_one(harness: Harness) -> None:
    """The entry is only where to look; it goes when no write of its time can come any more."""
    harness.one.put([RetainedWrite(1, b"a", b"x", 100), RetainedWrite(1, b"b", b"x", 100)])
    harness.one.put([RetainedWrite(1, b"a", b"y", 500), RetainedWrite(1, b"b", b"y")])

    assert harness.one.expire(100 + MINUTE_MS - 1, 10) == [(1, b"a")]
    harness.one.put([RetainedWrite(1, b"a", b"y", 900_000)])
    assert harness.index == [(100, 1, b"a"), (100, 1, b"b"), (900_000, 1, b"a")]
    assert harness.one.expire(100 + MINUTE_MS, 10) == []
    assert harness.index == [(900_000, 1, b"a")]
    assert [topic.topic for topic in harness.one.load(1)] == [b"a", b"b"]


def test_entry_comes_before_the_message(harness: Harness) -> None:
    """A crash between the two leaves an entry without a message, never a message without an entry, which no look-up finds."""
    harness.fates.append(("mutateRowTs", "refused"))
    with pytest.raises(BackendError):
        harness.one.put([RetainedWrite(1, b"a", b"x", 100)])

    assert harness.index == [(100, 1, b"a")]
    assert harness.one.expire(200, 10) == []
    assert harness.one.expire(100 + MINUTE_MS, 10) == []
    assert harness.index == []


def test_message_that_is_replaced_while_it_expires_stays(harness: Harness) -> None:
    """It is deleted at the version that was due."""
    harness.one.put([RetainedWrite(1, b"a", b"x", 100)])
    read = harness.gateway.verbs["getRowsWithColumns"]

    def replaced(arguments: dict[int, object]) -> object:
        answer = read(arguments)
        harness.gateway.verbs["getRowsWithColumns"] = read
        harness.other.put([RetainedWrite(1, b"a", b"new")])
        return answer

    harness.gateway.verbs["getRowsWithColumns"] = replaced  # type: ignore[assignment]
    assert harness.one.expire(100, 10) == [(1, b"a")]

    assert harness.one.fetch(1, [b"a"]) == [RetainedBody(b"a", 2, 0, b"new")]


def test_tenant_that_was_dropped_stays_empty(harness: Harness) -> None:
    """A late write is hidden, its counter is gone, and the entries go with time."""
    harness.one.put([RetainedWrite(1, b"a", b"x", 100), RetainedWrite(2, b"a", b"x")])
    assert harness.one.drop_tenant(1) == 1

    change_rows(harness.caller, TABLES.retained, {9: [_changed(RetainedWrite(1, b"a", b"late"), 9)]})

    assert list(harness.one.load(1)) == []
    assert keys.tenant_key(1) not in harness.rows
    assert harness.one.expire(100 + MINUTE_MS, 10) == []
    assert harness.index == []
    assert len(list(harness.one.load(2))) == 1


@pytest.mark.parametrize(
    "meta", [b"\2" + bytes(20), b"", b"\0", b"\1short", b"\1\xff" + bytes(19), b"\1" + bytes(8) + b"\x80" + bytes(11)]
)
def test_message_with_a_damaged_header_is_there_without_its_numbers(harness: Harness, meta: bytes) -> None:
    """Its body says whether it can be read. It stops no other, and somebody can delete it."""
    harness.one.put([RetainedWrite(1, topic, b"x") for topic in (b"a", b"b", b"c")])
    harness.rows[KEY][META_COLUMN] = (meta, 3)

    a, *others = harness.one.load(1)
    assert a == RetainedTopic(b"a", 0, 0, 0)
    assert [topic.topic for topic in others] == [b"b", b"c"]
    for topics in ([b"a"], [b"a", b"b"]):
        found, *rest = harness.one.fetch(1, topics)
        assert found == RetainedBody(b"a", 0, 0, b"x")
        assert [body.topic for body in rest] == topics[1:]
    assert harness.one.usage(1) == RetainedUsage(3, 2)
    assert harness.one.delete(1, [b"a"]) == 1
    assert [topic.topic for topic in harness.one.load(1)] == [b"b", b"c"]


def test_message_with_a_damaged_header_is_replaced_by_the_next_one(harness: Harness) -> None:
    harness.one.put([RetainedWrite(1, b"a", b"x")])
    harness.rows[KEY][META_COLUMN] = (b"\2new", 1)

    harness.other.put([RetainedWrite(1, b"a", b"y")])

    assert harness.one.fetch(1, [b"a"]) == [RetainedBody(b"a", 2, 0, b"y")]


def test_message_that_lost_its_body_has_an_empty_one(harness: Harness) -> None:
    """No message is empty, so who decodes it hears that it is damaged."""
    harness.one.put([RetainedWrite(1, b"a", b"x"), RetainedWrite(1, b"b", b"x")])
    del harness.rows[KEY][BODY_COLUMN]

    assert harness.one.fetch(1, [b"a", b"b"]) == [RetainedBody(b"a", 1, 0, b""), RetainedBody(b"b", 2, 0, b"x")]
    assert harness.one.delete(1, [b"a"]) == 1


def test_probe_writes(harness: Harness) -> None:
    """It ends an alarm, so it must not be content with reading; nobody sees what it wrote."""
    harness.fates.append(("mutateRow", "refused"))
    with pytest.raises(BackendError):
        harness.one.probe()

    harness.one.probe()

    assert harness.one.expire(1 << 50, 10) == []
    assert list(harness.one.load(0)) == []
