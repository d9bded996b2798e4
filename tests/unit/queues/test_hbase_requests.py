"""The coprocessor's requests and answers: the bytes of docs/reference/coprocessor.md, and answers that are none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iothub.base.errors import CorruptRecordError
from iothub.records.queued import decode_record, record_head
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.requests import Dropped, StatsResult, Status, Step
from iothub_services.queues.port import Move, MoveKind, Overflow, QueueLimits
from tests.support.hbase import queue_bytes

PAGE = Path(__file__).parents[3] / "docs/reference/coprocessor.md"
KEY = queue_bytes.queue_key(1)
LIMITS = QueueLimits(100_000, 64 << 20, Overflow.DROP_QOS0_FIRST)


def example(way: str) -> dict[str, bytes]:
    """What goes `>` or comes `<`, by name; of two the later one."""
    found = re.findall(rf"^([\w:]+) +{way} ([0-9a-f]+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: bytes.fromhex(octets) for name, octets in found}


def requested(steps: list[Step]) -> bytes:
    """Return a request whole."""
    return b"".join(requests.request(steps))


def test_requests_are_those_of_the_reference_page() -> None:
    """Each operation of its example, built here, has its bytes."""
    asked = example(">")
    head = record_head(1, 0, (), 0, b"", 3, is_apart=False)
    acknowledge = requests.move(Move(MoveKind.ACK, 1, 1, 1))

    assert requested([requests.append(KEY, 99, 1, (-1, -1), [requests.sized(head, 3), b"abc"])]) == asked["append"]
    assert requested([requests.claim(KEY, 5, b"w1")]) == asked["claim"]
    assert requested([requests.moves(KEY, 1, 2, [acknowledge])]) == asked["moves"]
    assert requests.page(1, 0, 100, 65_536) == asked["m:deq"]
    created = requested([requests.create(KEY, 0x1122334455667788, 1, LIMITS)])
    assert (created[:17], created[-17:]) == (asked["create"][:17], asked["create"][-17:])


def test_answers_are_read_as_the_reference_page_says() -> None:
    """What its example shows, taken apart."""
    answers = example("<")
    ((status, appended),) = requests.answers(answers["append"])
    ((_, claimed),) = requests.answers(answers["claim"])
    page = requests.paged(answers["m:deq"])

    assert status == Status.DONE
    assert requests.appended(appended) == (1, 3, [1], {}, [])
    assert requests.appended_run(appended, 1) == (1, 3, 1)
    assert requests.appended_run(appended, 2) == (0, 0, 0)
    assert requests.claimed(claimed) == (1, 0, 1, 0, 1, 3, (), [])
    assert page == (1, 1, True, [(1, record_head(1, 0, (), 0, b"", 3, is_apart=False) + b"abc")])
    assert requests.stats(answers["m:sta"]) == StatsResult(1, 0, 1, 1024, 1, 3, LIMITS)


def test_several_records_are_one_operation() -> None:
    """The same bytes as the tests' own client writes."""
    records = [queue_bytes.record(b"a"), queue_bytes.record(b"bc", 2, message_id=b"i" * 16)]

    parts = [part for each in records for part in (requests.sized(each[:5], len(each) - 5), each[5:])]
    step = requests.append(KEY, 9, 7, (3, 4), parts)

    assert requested([step]) == queue_bytes.request(queue_bytes.append(1, 9, 7, records, (3, 4)))


def test_settled_calls_stand_before_the_rest() -> None:
    """With a record whose id is settled later."""
    record = queue_bytes.record(b"a", 2, message_id=b"i" * 16, is_settled_later=True)
    head = record_head(2, 0, (), 0, b"i" * 16, 1, is_apart=False, is_settled_later=True)

    step = requests.append(KEY, 9, 7, (3, 4), [requests.sized(head, 1), b"a"], (2, 6))

    assert requested([step]) == queue_bytes.request(queue_bytes.append(1, 9, 7, [record], (3, 4), (2, 6)))
    assert decode_record(record).message_id == b"i" * 16


def test_answer_with_refusals_and_drops_is_taken_apart() -> None:
    """Runs over the records in their order, then what was dropped; the short way is not taken."""
    runs = (
        "00000003" + "00" + f"{7:016x}" + "00000002" + "02" + f"{2:016x}" + "00000001" + "01" + f"{3:016x}" + "00000001"
    )
    drops = "00000001" + "00000001" + "01" + f"{4:016x}" + "00000002"
    octets = bytes.fromhex(
        "00" + "0000000000000001" + "01" + "77" + f"{0:016x}" * 2 + f"{5:016x}{9:016x}" + runs + drops
    )

    answers = requests.appended(octets)

    assert (answers.messages, answers.size_bytes, answers.positions) == (5, 9, [7, 8, -1, 3])
    assert answers.full == {2: "session_queued_bytes"}
    assert answers.dropped == [Dropped(1, "session_queued_messages", 4, 2)]
    assert requests.appended_run(octets, 4) == (0, 0, 0)


@pytest.mark.parametrize("raw", [b"", b"\2\0\0\0\1", b"\1\0\0\0\2" + bytes(5), b"\1"])
def test_answer_of_another_version_is_refused_by_name(raw: bytes) -> None:
    """One that ends too early is, too."""
    with pytest.raises(CorruptRecordError, match=r"update the hub or the jar|use the jar of the version of the hub"):
        requests.answers(raw)


@pytest.mark.parametrize("read", [requests.paged, requests.stats, requests.found_due])
def test_read_of_another_version_is_refused_by_name(read: object) -> None:
    """Never misread."""
    assert callable(read)
    with pytest.raises(CorruptRecordError, match="has version 9, this program knows 1"):
        read(b"\x09" + bytes(80))


def test_shortened_append_answer_is_refused() -> None:
    """At whatever place it ends."""
    ((_, whole),) = requests.answers(example("<")["append"])
    for size in range(len(whole)):
        with pytest.raises(CorruptRecordError):
            requests.appended(whole[:size])
        assert requests.appended_run(whole[:size], 1) == (0, 0, 0)
