"""The queue coprocessor in Python, on the gateway in memory: for tests of the driver that need no Java (docs/reference/coprocessor.md).

Knows the contract alone: what it stores is not what the real one stores, but for the keys of its rows.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from iothub.records import keys
from iothub_services.hbase import thrift
from tests.support.hbase.hbase_gateway import Answer, FakeGateway, RefusedError
from tests.support.hbase.queue_bytes import DROP_OLDEST, REJECT, Bytes, Code, Kind, Status

_FULL, _STORED, _KNOWN = 2, 0, 1
_REFUSED = "org.apache.hadoop.hbase.DoNotRetryIOException: org.apache.hadoop.hbase.DoNotRetryIOException: refused: "


@dataclass
class Record:
    raw: bytes
    qos: int
    expires_at_ms: int
    size: int
    message_id: bytes
    is_settled_later: bool


@dataclass
class Queue:
    """One queue's state."""

    token: int
    epoch: int
    limits: tuple[int, int, int]
    head: int = 0
    tail: int = 0
    reserved: int = 0
    reader_sequence: int = 0
    claim_token: int = 0
    owner: bytes = b""
    records: dict[int, Record] = field(default_factory=dict)
    ids: dict[bytes, tuple[int, int, int]] = field(default_factory=dict)  # position, and writer and sequence or 0, 0
    released: set[int] = field(default_factory=set)
    inbound: dict[int, tuple[bool, bytes]] = field(default_factory=dict)
    writers: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(record.size for record in self.records.values())

    def stands(self) -> bytes:
        return struct.pack(">qqqq", self.head, self.tail, len(self.records), self.size_bytes)


class QueueCoprocessor:
    """Observes table `name` of a gateway. `requests`: how many changes were asked; `queues` by key."""

    def __init__(self, gateway: FakeGateway, name: bytes, splits: tuple[bytes, ...] = ()) -> None:
        self.gateway = gateway
        self.name = name
        self.starts = [b"", *splits]
        self.queues: dict[bytes, Queue] = {}
        self.damaged: set[bytes] = set()
        self.requests = 0
        self._plain = {verb: gateway.verbs[verb] for verb in ("append", "getRowWithColumns", "getRowsWithColumns")}
        gateway.tables.setdefault(name, {})
        gateway.verbs["append"] = self._append
        gateway.verbs["getRowWithColumns"] = self._get
        gateway.verbs["getRowsWithColumns"] = self._get
        gateway.verbs["getTableRegions"] = self._regions
        self._operations: dict[int, Callable[[bytes, Bytes], tuple[Status, bytes]]] = {
            Code.CREATE: self._create,
            Code.APPEND: self._append_records,
            Code.APPEND_SETTLING: self._append_settling,
            Code.MOVES: self._moves,
            Code.CLAIM: self._claim,
            Code.SET_LIMITS: self._set_limits,
            Code.PURGE: self._purge,
            Code.EXPIRE: self._expire,
            Code.DROP: self._drop,
        }

    # --- verbs of the gateway

    def _regions(self, arguments: dict[int, Any]) -> Answer:
        ends = [*self.starts[1:], b""]
        shown = [
            thrift.field(thrift.STRING, 1)
            + thrift.text(start)
            + thrift.field(thrift.STRING, 2)
            + thrift.text(end)
            + thrift.END
            for start, end in zip(self.starts, ends, strict=True)
        ]
        return thrift.LIST, thrift.structs(shown)

    def _append(self, arguments: dict[int, Any]) -> Answer:
        table, row, (column,), (value,) = (arguments[1][number] for number in (1, 2, 3, 4))
        if table != self.name:
            return self._plain["append"](arguments)
        if column != b"m:mul":
            raise RefusedError(_REFUSED + "takes appends of one cell in column m:mul only", 1, False)
        answer = self._request(row, value)
        cell = thrift.field(thrift.STRING, 1) + thrift.text(answer) + thrift.END
        return thrift.LIST, thrift.structs([cell])

    def _get(self, arguments: dict[int, Any]) -> Answer:
        columns = arguments.get(3, [])
        if arguments[1] != self.name or columns[0] not in (b"m:deq", b"m:sta", b"m:due"):
            verb = "getRowsWithColumns" if isinstance(arguments[2], list) else "getRowWithColumns"
            return self._plain[verb](arguments)
        (column,) = columns
        asked = (arguments.get(4) or {}).get(b"request", b"")
        rows = arguments[2] if isinstance(arguments[2], list) else [arguments[2]]
        shown = []
        for row in rows:
            value = self._read(column, row, asked)
            if value is not None:
                cell = thrift.field(thrift.STRING, 1) + thrift.text(value) + thrift.END
                head = thrift.field(thrift.STRING, 1) + thrift.text(row) + thrift.field(thrift.MAP, 2)
                pairs = struct.pack(">bbi", thrift.STRING, thrift.STRUCT, 1) + thrift.text(column) + cell
                shown.append(head + pairs + thrift.END)
        return thrift.LIST, thrift.structs(shown)

    # --- changes

    def region(self, key: bytes) -> int:
        return bisect_right(self.starts, key) - 1

    def _request(self, row: bytes, value: bytes) -> bytes:
        reader = Bytes(value)
        version, count = reader.take("Bi")
        assert (version, 1 <= count <= 16_384) == (1, True)
        steps = []
        for number in range(count):
            code, key, size = reader.one("B"), reader.bytes(12), reader.one("i")
            steps.append((code, key, reader.bytes(size)))
            if self.region(key) != self.region(row):
                queue_id, tenant = keys.split_queue_key(key)
                text = f"operation {number}: queue {queue_id} of tenant {tenant} is not in region x"
                raise RefusedError(_REFUSED + text, 1, False)
        assert reader.is_at_end
        self.requests += 1
        results = b""
        for code, key, taken in steps:
            step = Bytes(taken)
            if key in self.damaged and code == Code.DROP:
                self.damaged.remove(key)
                self._drop(key, step)
                status, answer = Status.DONE, bytes(8)
            elif key in self.damaged:
                status, answer = Status.DAMAGED, b"state: version 9 is not known here"
            elif code != Code.CREATE and key not in self.queues:
                status, answer = Status.GONE, bytes(8) if code == Code.DROP else b""
            else:
                status, answer = self._operations[code](key, step)
                assert step.is_at_end or status in (Status.STALE_EPOCH, Status.OLD_SEQUENCE)
            results += struct.pack(">Bi", status, len(answer)) + answer
        return struct.pack(">Bi", 1, count) + results

    def _create(self, key: bytes, step: Bytes) -> tuple[Status, bytes]:
        token, first_epoch = step.take("qq")
        limits = step.take("qqB")
        if key in self.queues:
            return (Status.DONE if self.queues[key].token == token else Status.EXISTS), b""
        self.queues[key] = Queue(token, first_epoch - 1, (limits[0], limits[1], limits[2]))
        self._cell(keys.meta_row(key), b"m:s", b"\1state")
        return Status.DONE, b""

    def _append_settling(self, key: bytes, step: Bytes) -> tuple[Status, bytes]:
        first, end = step.take("qq")
        return self._append_records(key, step, (first, end))

    def _append_records(self, key: bytes, step: Bytes, settled: tuple[int, int] = (0, 0)) -> tuple[Status, bytes]:
        queue = self.queues[key]
        writer, sequence, room_messages, room_bytes, count = step.take("qqqqi")
        records = [_record(step.bytes(step.one("i"))) for _ in range(count)]
        last, answer = queue.writers.get(writer, (0, b""))
        if sequence < last:
            return Status.OLD_SEQUENCE, struct.pack(">q", last)
        is_repeat = sequence == last
        if not is_repeat:
            queue.ids = {
                each: kept
                for each, kept in queue.ids.items()
                if kept[1] != writer or not settled[0] <= kept[2] < settled[1]
            }
            answer = self._deliver(key, queue, records, [room_messages, room_bytes], (writer, sequence))
            queue.writers[writer] = sequence, answer
        now = struct.pack(">BqB", is_repeat, queue.epoch, len(queue.owner)) + queue.owner + queue.stands()
        return Status.DONE, now + answer

    def _deliver(
        self, key: bytes, queue: Queue, records: list[Record], room: list[int], call: tuple[int, int]
    ) -> bytes:
        runs: list[bytes] = []
        drops: list[bytes] = []
        for number, record in enumerate(records):
            known = queue.ids.get(record.message_id) if record.message_id else None
            if known is not None:
                runs.append(struct.pack(">Bqi", _KNOWN, known[0], 1))
                continue
            hit = _hit(queue, record, room)
            victims = _victims(queue, record, room) if hit else []
            if victims is None:
                runs.append(struct.pack(">Bqi", _FULL, hit, 1))
                continue
            for position in victims:
                room[0] += room[0] >= 0
                room[1] += queue.records[position].size if room[1] >= 0 else 0
                self._remove(key, position)
                drops.append(struct.pack(">iBqi", number, hit, position, 1))
            queue.tail += 1
            queue.records[queue.tail] = record
            self._cell(keys.record_row(key, queue.tail), b"d:b", record.raw)
            if record.message_id:
                queue.ids[record.message_id] = (queue.tail, *(call if record.is_settled_later else (0, 0)))
            room[0] -= room[0] >= 0
            room[1] -= record.size if room[1] >= 0 else 0
            runs.append(struct.pack(">Bqi", _STORED, queue.tail, 1))
        return struct.pack(">i", len(runs)) + b"".join(runs) + struct.pack(">i", len(drops)) + b"".join(drops)

    def _moves(self, key: bytes, step: Bytes) -> tuple[Status, bytes]:
        queue = self.queues[key]
        epoch, sequence, count = step.take("qqi")
        if epoch != queue.epoch:
            return Status.STALE_EPOCH, struct.pack(">q", queue.epoch)
        if sequence < queue.reader_sequence:
            return Status.OLD_SEQUENCE, struct.pack(">q", queue.reader_sequence)
        queue.reader_sequence = sequence
        answer = b"".join(self._move(key, queue, step) for _ in range(count))
        return Status.DONE, queue.stands() + answer

    def _move(self, key: bytes, queue: Queue, step: Bytes) -> bytes:
        kind, value = step.take("Bq")
        if kind == Kind.ACK:
            queue.head = max(queue.head, min(value, queue.tail))
            for position in [each for each in queue.records if each <= queue.head]:
                self._remove(key, position, is_consumed=True)
            queue.released = {each for each in queue.released if each > queue.head}
        elif kind == Kind.RELEASE:
            queue.released |= {value} if queue.head < value <= queue.tail else set()
        elif kind == Kind.RESERVE:
            queue.reserved = value
        elif kind == Kind.FINISH_INBOUND:
            queue.inbound.pop(value, None)
            self._cell(keys.intent_row(key, value), b"m:p", None)
        elif kind == Kind.RECORD_INBOUND:
            if not queue.inbound.get(value, (False, b""))[0]:
                queue.inbound[value] = True, queue.inbound.get(value, (False, bytes(16)))[1]
                self._cell(keys.intent_row(key, value), b"m:p", None)
        else:
            message_id, kept = step.bytes(16), step.bytes(step.one("i"))
            known = queue.inbound.setdefault(value, (False, message_id))
            is_new = known == (False, message_id) and keys.intent_row(key, value) not in self.gateway.table(self.name)
            if is_new:
                self._cell(keys.intent_row(key, value), b"m:p", kept)
            return struct.pack(">B", 0 if is_new else 2 if known[0] else 1) + known[1]
        return b""

    def _claim(self, key: bytes, step: Bytes) -> tuple[Status, bytes]:
        queue = self.queues[key]
        token, size = step.take("qB")
        owner = step.bytes(size)
        if token == 0 or token != queue.claim_token:
            queue.epoch += 1
            queue.reader_sequence, queue.claim_token, queue.owner = 0, token, owner
        answer = struct.pack(">qqqq", queue.epoch, queue.head, queue.tail, queue.reserved)
        answer += struct.pack(">qqi", len(queue.records), queue.size_bytes, len(queue.released))
        answer += b"".join(struct.pack(">q", each) for each in sorted(queue.released))
        answer += struct.pack(">i", len(queue.inbound))
        return Status.DONE, answer + b"".join(
            struct.pack(">HB", packet_id, is_routed) + kept
            for packet_id, (is_routed, kept) in sorted(queue.inbound.items())
        )

    def _set_limits(self, key: bytes, step: Bytes) -> tuple[Status, bytes]:
        messages, size_bytes, policy = step.take("qqB")
        self.queues[key].limits = messages, size_bytes, policy
        return Status.DONE, b""

    def _purge(self, key: bytes, step: Bytes) -> tuple[Status, bytes]:
        positions = list(self.queues[key].records)
        for position in positions:
            self._remove(key, position, is_consumed=True)
        return Status.DONE, struct.pack(">q", len(positions))

    def _expire(self, key: bytes, step: Bytes) -> tuple[Status, bytes]:
        queue = self.queues[key]
        now_ms, is_unsent, count = step.take("qBi")
        removed, spared = [], []
        for position in [step.one("q") for _ in range(count)]:
            record = queue.records.get(position)
            if record is None or not 0 < record.expires_at_ms <= now_ms:
                continue
            if position <= queue.reserved and not is_unsent:
                spared.append(position)
            else:
                self._remove(key, position)
                removed.append(position)
        answer = [struct.pack(f">i{len(each)}q", len(each), *each) for each in (removed, spared)]
        return Status.DONE, b"".join(answer)

    def _drop(self, key: bytes, step: Bytes) -> tuple[Status, bytes]:
        queue = self.queues.pop(key)
        for row in [row for row in self.gateway.table(self.name) if row.startswith(key) and row != keys.meta_row(key)]:
            del self.gateway.table(self.name)[row]
        return Status.DONE, struct.pack(">q", len(queue.records))

    def _remove(self, key: bytes, position: int, *, is_consumed: bool = False) -> None:
        """Message ids of consumed records are known until they are settled (or for a day, in the real one); others go with their records."""
        queue = self.queues[key]
        record = queue.records.pop(position)
        if not is_consumed:
            queue.ids.pop(record.message_id, None)
        self._cell(keys.record_row(key, position), b"d:b", None)

    def _cell(self, row: bytes, column: bytes, value: bytes | None) -> None:
        table = self.gateway.table(self.name)
        if value is None:
            table.pop(row, None)
        else:
            table.setdefault(row, {})[column] = (value, 1)

    # --- reading

    def _read(self, column: bytes, row: bytes, asked: bytes) -> bytes | None:
        if column == b"m:due":
            return self._due(self.region(row), asked)
        key = row[:12]
        if key in self.damaged:
            return struct.pack(">BB", 1, Status.DAMAGED) + b"state: version 9 is not known here"
        queue = self.queues.get(key)
        if column == b"m:sta":
            return None if queue is None else _stats(queue)
        return struct.pack(">BB", 1, Status.GONE) if queue is None else _page(queue, asked)

    def _due(self, region: int, asked: bytes) -> bytes:
        version, now_ms, count, *behind = struct.unpack(">BqiqQq", asked)
        assert version == 1
        due = sorted(
            (record.expires_at_ms, keys.split_queue_key(key)[0], position, key)
            for key, queue in self.queues.items()
            if self.region(key) == region
            for position, record in queue.records.items()
            if 0 < record.expires_at_ms <= now_ms
        )
        found = [each for each in due if each[:3] > tuple(behind)][:count]
        shown = [
            struct.pack(">q", at) + key + struct.pack(">qB", position, position <= self.queues[key].reserved)
            for at, _, position, key in found
        ]
        return struct.pack(">Bi", 1, len(found)) + b"".join(shown)


def _record(raw: bytes) -> Record:
    version, qos, _, form, expires_at_ms, size, count = struct.unpack_from(">BBBBqiH", raw)
    assert version == 1
    at = 18 + 4 * count
    message_id = raw[at : at + 16] if form & 2 else b""
    rest = raw[at + len(message_id) :]
    assert len(rest) == size or form & 1
    assert form & 2 or not form & 4
    return Record(raw, qos, expires_at_ms, size, message_id, bool(form & 4))


def _hit(queue: Queue, record: Record, room: list[int]) -> int:
    messages, size_bytes, _ = queue.limits
    checks = (
        messages and len(queue.records) + 1 > messages,
        size_bytes and queue.size_bytes + record.size > size_bytes,
        0 <= room[0] < 1,
        0 <= room[1] < record.size,
    )
    return next((number for number, is_over in enumerate(checks, 1) if is_over), 0)


def _victims(queue: Queue, record: Record, room: list[int]) -> list[int] | None:
    most, most_bytes, policy = queue.limits
    messages = max(len(queue.records) + 1 - most if most else 0, 1 - room[0] if room[0] >= 0 else 0)
    size = record.size
    size_bytes = max(queue.size_bytes + size - most_bytes if most_bytes else 0, size - room[1] if room[1] >= 0 else 0)
    victims: list[int] = []
    if policy == REJECT or messages > len(queue.records) or size_bytes > queue.size_bytes:
        return None
    for position, each in queue.records.items():
        if messages <= 0 and size_bytes <= 0:
            break
        if position > queue.reserved and (policy == DROP_OLDEST or each.qos == 0):
            victims.append(position)
            messages -= 1
            size_bytes -= each.size
    return victims if messages <= 0 and size_bytes <= 0 else None


def _page(queue: Queue, asked: bytes) -> bytes:
    version, epoch, after, count, size_bytes = struct.unpack(">Bqqii", asked)
    assert version == 1
    if epoch != queue.epoch:
        return struct.pack(">BBq", 1, Status.STALE_EPOCH, queue.epoch)
    found, upto = [], max(after, queue.tail)
    for position, record in queue.records.items():
        if position <= after:
            continue
        found.append(struct.pack(">qi", position, len(record.raw)) + record.raw)
        size_bytes -= record.size
        if size_bytes <= 0 or len(found) == count:
            upto = position
            break
    head = struct.pack(">BBqqqBi", 1, 0, queue.head, queue.tail, upto, upto >= queue.tail, len(found))
    return head + b"".join(found)


def _stats(queue: Queue) -> bytes:
    stands = (queue.epoch, queue.head, queue.tail, queue.reserved, len(queue.records), queue.size_bytes)
    return struct.pack(">BBqqqqqqqqBB", 1, 0, *stands, *queue.limits, len(queue.owner)) + queue.owner
