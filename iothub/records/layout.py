"""The names and cells by which stores of a hub are known to everybody who opens them: tables of SQLite, tables and columns of HBase, topics of Kafka.

Knows no driver and no client library: hub and jobs open the same stores with different ones. Row keys are in `iothub.records.keys`,
what a record says in `iothub.records.state`, `checkpoint` and `events`.
"""

from __future__ import annotations

import struct

from iothub.base.errors import CorruptRecordError, FutureRecordError
from iothub.records.events import GENERATION_BITS, Topic

# --- SQLite

EVENT_TABLES = {Topic.SESSIONS: "session_event", Topic.ANALYTICS: "analytics_event"}  # offset, key, value
STATE_TABLE = "session"  # tenant, client_id, offset, record
APPLIED_TABLE = "applied"  # partition, offset
CHECKPOINT_TABLE = "checkpoint"  # version, tenant, client_id, value
POINTER_TABLE = "pointer"  # id 0, value
MARK_TABLE = "mark"  # name, value: how far other jobs are, and what kept versions are of

_MARKS = f"CREATE TABLE {MARK_TABLE} (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
CHECKPOINTS_FILE_VERSION = 2
CHECKPOINTS_FILE = (
    f"CREATE TABLE {POINTER_TABLE} (id INTEGER PRIMARY KEY CHECK (id = 0), value BLOB NOT NULL)",
    f"""CREATE TABLE {CHECKPOINT_TABLE} (
        version INTEGER NOT NULL, tenant INTEGER NOT NULL, client_id TEXT NOT NULL, value BLOB NOT NULL,
        PRIMARY KEY (version, tenant, client_id)) WITHOUT ROWID""",
    _MARKS,
)
CHECKPOINTS_FILE_UPGRADES = {1: (_MARKS,)}

# --- HBase

STATES_TABLE = "state"
CHECKPOINTS_TABLE = "checkpoints"
STATE_COLUMN = b"s:r"
APPLIED_COLUMN = b"s:o"
POINTER_COLUMN = b"c:p"
CHECKPOINT_COLUMN = b"c:r"
CREATE_TABLES = "create them: iothub hbase create-tables (with the --config of the hub, if it has one)"

_CELL_VERSION = 1
_HEAD = struct.Struct(">BQ")  # version, offset
_COUNT = struct.Struct(">BH")  # version, number of offsets


def hbase_table(namespace: str, name: str) -> str:
    """Return the name of a table with its namespace."""
    return f"{namespace}:{name}"


def missing_tables(*names: str) -> str:
    """Say that tables are not there, and what makes them."""
    return f"missing in HBase: {', '.join(names)}; {CREATE_TABLES}"


def encode_state_cell(offset: int, record: bytes) -> bytes:
    """Return the cell of a session: a version, the offset that its record includes, the record; without one it is gone."""
    return _HEAD.pack(_CELL_VERSION, offset) + record


def decode_state_cell(value: bytes, where: str) -> tuple[int, bytes]:
    """Return (offset, record); no record: the session is gone. Raises CorruptRecordError, FutureRecordError."""
    require_cell_version(value, _CELL_VERSION, where)
    if len(value) < _HEAD.size:
        raise CorruptRecordError(f"{where}: a damaged cell ({value.hex()})")
    _, offset = _HEAD.unpack_from(value)
    return offset, value[_HEAD.size :]


def encode_applied(offsets: tuple[int, ...]) -> bytes:
    """Return the cell of the applied offsets: a version, how many, and each in 8 bytes."""
    return _COUNT.pack(_CELL_VERSION, len(offsets)) + struct.pack(f">{len(offsets)}Q", *offsets)


def decode_applied(value: bytes, where: str) -> tuple[int, ...]:
    """Read the cell of the applied offsets. Raises CorruptRecordError, FutureRecordError."""
    require_cell_version(value, _CELL_VERSION, where)
    try:
        _, count = _COUNT.unpack_from(value)
        return struct.unpack(f">{count}Q", value[_COUNT.size :])
    except struct.error as error:
        raise CorruptRecordError(f"{where}: damaged ({len(value)} bytes)") from error


def require_cell_version(value: bytes, known: int, where: str) -> None:
    """Raise CorruptRecordError for a cell without a version, FutureRecordError for one of a newer program, naming `where` it is."""
    if not value or not value[0]:
        raise CorruptRecordError(f"{where}: a damaged cell ({value[:16].hex() or 'empty'})")
    if value[0] > known:
        raise FutureRecordError(f"{where}: format version {value[0]}, this program knows {known}: upgrade it")


# --- Kafka


def kafka_topic(prefix: str, topic: Topic, generation: int = 0) -> str:
    """Return the name of a topic in the cluster."""
    name = f"{prefix}.{topic.value.partition('.')[2]}"
    return f"{name}.{generation}" if generation else name


def kafka_owner_topic(prefix: str) -> str:
    """Return the name of the topic that says whose the topics of a prefix are (`iothub.records.owner`)."""
    return f"{prefix}.installation"


def newest_generation(prefix: str, found: list[str]) -> int:
    """Return the generation of the session log among the topics of a cluster: the newest."""
    first = f"{kafka_topic(prefix, Topic.SESSIONS)}."
    ends = [name.removeprefix(first) for name in found if name.startswith(first)]
    return max((int(end) for end in ends if end.isascii() and end.isdecimal()), default=0)


def kafka_base(generation: int) -> int:
    """Return what is added to an offset of Kafka's (which begin at 0) to get ours (which begin at 1)."""
    return (generation << GENERATION_BITS) + 1
