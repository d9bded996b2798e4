"""The calls of HBase's Thrift 1 gateway that we need, each as a value: ready-made bytes, and how its answer is read.

Knows no connection. A call is encoded where it is made, in whatever thread, and its answer decoded where it is wanted; the reactor
only moves bytes. Column names are `family:qualifier`. `pin`: calls with the same one take the same connection, one after another; where the pins
of a caller can be counted they are numbers, so that its calls take all connections evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from iothub.base.errors import BackendError, LocalProtocolError
from iothub_services.hbase import refusals, replies, thrift
from iothub_services.hbase.refusals import Effect
from iothub_services.hbase.replies import Family, Region, Row, Scanner
from iothub_services.hbase.thrift import BOOL, END, I32, I64, LIST, MAP, STOP, STRING, STRUCT, Reader, ThriftError

Pin = bytes | int

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_PREFIX_BYTES = 4  # of a frame: its length
_SEQUENCE_BYTES = 4
_TEXT = [thrift.field(STRING, number) for number in range(10)]
_LIST = [thrift.field(LIST, number) for number in range(10)]
_MAP = [thrift.field(MAP, number) for number in range(10)]
_STRUCT = [thrift.field(STRUCT, number) for number in range(10)]
_I32 = [thrift.field(I32, number) for number in range(10)]
_I64 = [thrift.field(I64, number) for number in range(10)]
_IS_DELETE = thrift.field(BOOL, 1) + b"\1"


@dataclass(frozen=True, slots=True, eq=False)
class Verb(Generic[T_co]):
    """One verb of the gateway: its name, what it does to the tables, and how its result is read."""

    name: str
    effect: Effect
    read: Callable[[Reader], T_co]
    kind: int  # Thrift's type of the result; STOP: there is none
    head: bytes  # of the message, before the sequence number

    @property
    def is_repeatable(self) -> bool:
        """May it be made again, at another gateway? A scanner is its own gateway's."""
        return self.effect is Effect.NONE and self.name not in ("scannerGetList", "scannerClose")

    @property
    def body_at(self) -> int:
        """Where the struct begins in an answer's frame."""
        return len(self.head) + _SEQUENCE_BYTES


class Call(Generic[T_co]):
    """One call, encoded. Immutable by convention. `scanner`: the one that it asks, known only to the connection that has opened it."""

    __slots__ = ("body", "pin", "scanner", "verb")

    def __init__(self, verb: Verb[T_co], body: bytes, pin: Pin, scanner: Scanner | None = None) -> None:
        self.verb = verb
        self.body = body
        self.pin = pin
        self.scanner = scanner

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return _PREFIX_BYTES + self.verb.body_at + len(self.body)

    def frame(self, sequence: int) -> bytes:
        return b"".join(self.pieces(sequence))

    def pieces(self, sequence: int) -> tuple[bytes, bytes]:
        """Return the frame in two pieces: whoever writes it copies the large one anyway."""
        verb, body = self.verb, self.body
        return thrift.i32(verb.body_at + len(body)) + verb.head + thrift.i32(sequence), body

    def decode(self, frame: bytes) -> T_co:
        """Read the answer to this call (a frame that `Pipeline` matched with it).

        Raises:
            BackendError: HBase refused the call (`HBaseError`), or the answer cannot be read.
        """
        verb = self.verb
        reader = Reader(frame, verb.body_at)
        try:
            if frame[3] == thrift.EXCEPTION:
                raise refusals.failure(verb.name, verb.effect, *replies.read_failure(reader))
            kind, number = reader.field()
            if number == 0:
                if kind != verb.kind:
                    raise ThriftError(f"a result of type {kind}")
                return verb.read(reader)
            said = replies.read_refusal(reader)
        except ThriftError as error:
            raise BackendError(
                f"HBase's gateway answered {verb.name} with {error}: is it a Thrift 1 gateway of HBase 2?",
                retryable=False,
                is_written=verb.effect is not Effect.NONE,
            ) from None
        if number == 1:
            raise refusals.refusal(verb.name, verb.effect, said.text, said.can_retry)
        if number == 2:
            raise refusals.illegal_argument(verb.name, verb.effect, said.text)
        raise refusals.already_exists(verb.name, said.text)


def _verb(name: str, effect: Effect, kind: int, read: Callable[[Reader], T]) -> Verb[T]:
    return Verb(name, effect, read, kind, _VERSION_CALL + thrift.text(name.encode()))


_VERSION_CALL = (thrift.VERSION_1 | thrift.CALL).to_bytes(4, "big")

APPEND = _verb("append", Effect.ROW, LIST, replies.read_first_value)
CHECK_AND_PUT = _verb("checkAndPut", Effect.ROW, BOOL, replies.read_bool)
MUTATE_ROW = _verb("mutateRow", Effect.ROW, STOP, replies.read_nothing)
MUTATE_ROW_AT = _verb("mutateRowTs", Effect.ROW, STOP, replies.read_nothing)
MUTATE_ROW_BOTH_WAYS = _verb("mutateRow", Effect.ROWS, STOP, replies.read_nothing)  # delete and put are two operations
MUTATE_ROW_BOTH_WAYS_AT = _verb("mutateRowTs", Effect.ROWS, STOP, replies.read_nothing)
MUTATE_ROWS = _verb("mutateRows", Effect.ROWS, STOP, replies.read_nothing)
MUTATE_ROWS_AT = _verb("mutateRowsTs", Effect.ROWS, STOP, replies.read_nothing)
INCREMENT = _verb("atomicIncrement", Effect.ROW, I64, replies.read_i64)
GET_ROW = _verb("getRow", Effect.NONE, LIST, replies.read_row)
GET_ROW_COLUMNS = _verb("getRowWithColumns", Effect.NONE, LIST, replies.read_row)
GET_ROWS = _verb("getRows", Effect.NONE, LIST, replies.read_rows)
GET_ROWS_COLUMNS = _verb("getRowsWithColumns", Effect.NONE, LIST, replies.read_rows)
OPEN_SCAN = _verb("scannerOpenWithScan", Effect.NONE, I32, replies.read_scanner)
NEXT_ROWS = _verb("scannerGetList", Effect.NONE, LIST, replies.read_rows)
CLOSE_SCAN = _verb("scannerClose", Effect.NONE, STOP, replies.read_nothing)
TABLE_NAMES = _verb("getTableNames", Effect.NONE, LIST, replies.read_names)
FAMILIES = _verb("getColumnDescriptors", Effect.NONE, MAP, replies.read_families)
REGIONS = _verb("getTableRegions", Effect.NONE, LIST, replies.read_regions)
IS_ENABLED = _verb("isTableEnabled", Effect.NONE, BOOL, replies.read_bool)
SERVER_TYPE = _verb("getThriftServerType", Effect.NONE, I32, replies.read_i32)

Attributes = Mapping[bytes, bytes]
Columns = Mapping[bytes, bytes]


class Mutation(NamedTuple):
    """Changes of one row: columns to put, and columns (or whole families, `b"f"`) to delete."""

    row: bytes
    puts: Columns
    deletes: Sequence[bytes] = ()


# --- writing


def append(table: bytes, row: bytes, column: bytes, value: bytes, pin: Pin | None = None) -> Call[bytes]:
    """Append to a cell; the answer is its new value, or what a coprocessor puts in its place (b"" for nothing)."""
    return append_pieces(table, row, column, (value,), pin)


def append_pieces(
    table: bytes, row: bytes, column: bytes, pieces: Sequence[bytes], pin: Pin | None = None
) -> Call[bytes]:
    """The same with a value in pieces: each is copied once."""
    body = b"".join(
        (
            _STRUCT[1],
            _TEXT[1],
            thrift.text(table),
            _TEXT[2],
            thrift.text(row),
            _LIST[3],
            thrift.texts((column,)),
            _LIST[4],
            thrift.one_text(sum(map(len, pieces))),
            *pieces,
            END,
            END,
        )
    )
    return Call(APPEND, body, row if pin is None else pin)


def check_and_put(
    table: bytes, row: bytes, column: bytes, expected: bytes | None, put: tuple[bytes, bytes]
) -> Call[bool]:
    """Put (column, value) if `column` has the expected value; None: if it is absent. False: it has not.

    Raises:
        LocalProtocolError: b"" is expected, which the gateway takes for "absent".
    """
    if expected == b"":
        raise LocalProtocolError(
            'checkAndPut cannot expect b"": the gateway takes it for "absent"; store a version byte'
        )
    checked = b"" if expected is None else _TEXT[5] + thrift.text(expected)
    body = b"".join((_row(table, row), _TEXT[3], thrift.text(column), checked, _STRUCT[6], _put(*put), END))
    return Call(CHECK_AND_PUT, body, row)


def mutate_row(
    table: bytes, row: bytes, puts: Columns, deletes: Sequence[bytes] = (), timestamp: int | None = None
) -> Call[None]:
    """Change columns of one row, all or nothing if it is only puts or only deletes; `timestamp`: of every cell."""
    body = _row(table, row) + _LIST[3] + _changes(puts, deletes)
    is_both = bool(puts) and bool(deletes)
    if timestamp is None:
        return Call(MUTATE_ROW_BOTH_WAYS if is_both else MUTATE_ROW, body + END, row)
    verb = MUTATE_ROW_BOTH_WAYS_AT if is_both else MUTATE_ROW_AT
    return Call(verb, body + _I64[4] + thrift.i64(timestamp) + END, row)


def mutate_rows(table: bytes, mutations: Sequence[Mutation], timestamp: int | None = None) -> Call[None]:
    """Change many rows: puts first, then deletes. Not atomic: a failure may leave some rows changed."""
    batches = [
        _TEXT[1] + thrift.text(each.row) + _LIST[2] + _changes(each.puts, each.deletes) + END for each in mutations
    ]
    body = _TEXT[1] + thrift.text(table) + _LIST[2] + thrift.structs(batches)
    pin = mutations[0].row if mutations else table
    if timestamp is None:
        return Call(MUTATE_ROWS, body + END, pin)
    return Call(MUTATE_ROWS_AT, body + _I64[3] + thrift.i64(timestamp) + END, pin)


def increment(table: bytes, row: bytes, column: bytes, amount: int) -> Call[int]:
    """Add to a 64-bit counter; the answer is its new value. Not idempotent."""
    body = _row(table, row) + _TEXT[3] + thrift.text(column) + _I64[4] + thrift.i64(amount) + END
    return Call(INCREMENT, body, row)


# --- reading


def get_row(
    table: bytes,
    row: bytes,
    columns: Sequence[bytes] = (),
    attributes: Attributes | None = None,
    pin: Pin | None = None,
) -> Call[Row | None]:
    """Read one row, or only these columns (`b"f:q"`, or `b"f"` for a family); None: it is not there."""
    pin = row if pin is None else pin
    if columns:
        body = _row(table, row) + _LIST[3] + thrift.texts(columns) + _attributes(4, attributes) + END
        return Call(GET_ROW_COLUMNS, body, pin)
    return Call(GET_ROW, _row(table, row) + _attributes(3, attributes) + END, pin)


def get_rows(table: bytes, rows: Sequence[bytes], columns: Sequence[bytes] = ()) -> Call[list[Row]]:
    """Read many rows in one call; those that are not there are left out of the answer."""
    asked = _TEXT[1] + thrift.text(table) + _LIST[2] + thrift.texts(rows)
    pin = rows[0] if rows else table
    if columns:
        return Call(GET_ROWS_COLUMNS, asked + _LIST[3] + thrift.texts(columns) + END, pin)
    return Call(GET_ROWS, asked + END, pin)


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows from `start` to before `stop` (b"": no bound), ascending.

    `caching`: rows that the gateway fetches at once. `filter_text`: HBase's filter language.
    """

    table: bytes
    start: bytes = b""
    stop: bytes = b""
    columns: tuple[bytes, ...] = ()
    caching: int = 128
    filter_text: bytes = b""

    @property
    def pin(self) -> bytes:
        return self.start or self.table


def open_scan(scan: Scan) -> Call[Scanner]:
    """Open a scanner, for this connection only: what follows needs the same pin, and fails with `LostError` when it has gone."""
    options = [_TEXT[1] + thrift.text(scan.start)]
    if scan.stop:
        options.append(_TEXT[2] + thrift.text(scan.stop))
    if scan.columns:
        options.append(_LIST[4] + thrift.texts(scan.columns))
    options.append(_I32[5] + thrift.i32(scan.caching))
    if scan.filter_text:
        options.append(_TEXT[6] + thrift.text(scan.filter_text))
    body = b"".join((_TEXT[1], thrift.text(scan.table), _STRUCT[2], *options, END, END))
    return Call(OPEN_SCAN, body, scan.pin)


def next_rows(scanner: Scanner, count: int, pin: bytes) -> Call[list[Row]]:
    """Read on; an empty answer is the end."""
    return Call(NEXT_ROWS, _I32[1] + thrift.i32(scanner.number) + _I32[2] + thrift.i32(count) + END, pin, scanner)


def close_scan(scanner: Scanner, pin: bytes) -> Call[None]:
    return Call(CLOSE_SCAN, _I32[1] + thrift.i32(scanner.number) + END, pin, scanner)


# --- tables


def table_names() -> Call[list[bytes]]:
    """List all tables. It reaches the master, so an answer means that HBase is there."""
    return Call(TABLE_NAMES, END, b"")


def families(table: bytes) -> Call[list[Family]]:
    return Call(FAMILIES, _table(table), table)


def regions(table: bytes) -> Call[list[Region]]:
    """List a table's regions, ascending."""
    return Call(REGIONS, _table(table), table)


def is_enabled(table: bytes) -> Call[bool]:
    return Call(IS_ENABLED, _table(table), table)


# --- the gateway


def server_type() -> Call[int]:
    """Ask the gateway what it is. It answers by itself, whatever HBase does; an old one refuses, which is an answer, too."""
    return Call(SERVER_TYPE, END, b"")


# --- pieces


def _table(table: bytes) -> bytes:
    return _TEXT[1] + thrift.text(table) + END


def _row(table: bytes, row: bytes) -> bytes:
    return b"".join((_TEXT[1], thrift.text(table), _TEXT[2], thrift.text(row)))


def _put(column: bytes, value: bytes) -> bytes:
    """Encode a Mutation; it goes to the log, which is its default."""
    return b"".join((_TEXT[2], thrift.text(column), _TEXT[3], thrift.text(value), END))


def _changes(puts: Columns, deletes: Sequence[bytes]) -> bytes:
    changes = [_put(column, value) for column, value in puts.items()]
    changes += [_IS_DELETE + _TEXT[2] + thrift.text(column) + END for column in deletes]
    return thrift.structs(changes)


def _attributes(number: int, attributes: Attributes | None) -> bytes:
    return _MAP[number] + thrift.text_map(attributes) if attributes else b""
