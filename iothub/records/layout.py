"""The names and cells by which stores of a hub are known to everybody who opens them: tables of SQLite, tables and columns of HBase, topics of Kafka.

Knows no driver and no client library: hub and jobs open the same stores with different ones. Row keys are in `iothub.records.keys`,
what a record says in `iothub.records.state`, `checkpoint` and `events`.
"""

from __future__ import annotations

import struct

from iothub.base.errors import CorruptRecordError
from iothub.records.events import GENERATION_BITS, Topic
from iothub.records.keys import TENANT_BYTES, session_of_state

# --- SQLite

EVENT_TABLES = {Topic.SESSIONS: "session_event", Topic.ANALYTICS: "analytics_event"}  # offset, key, value
STATE_TABLE = "session"  # tenant, client_id, offset, record
APPLIED_TABLE = "applied"  # partition, offset
CHECKPOINT_TABLE = "checkpoint"  # version, tenant, client_id, value
POINTER_TABLE = "pointer"  # id 0, value
MARK_TABLE = "mark"  # name, value: how far other jobs are, and what kept versions are of

EVENTS_FILE_VERSION = 1
STATE_FILE_VERSION = 1
CHECKPOINTS_FILE_VERSION = 1
CHECKPOINTS_FILE = (
    f"CREATE TABLE {POINTER_TABLE} (id INTEGER PRIMARY KEY CHECK (id = 0), value BLOB NOT NULL)",
    f"""CREATE TABLE {CHECKPOINT_TABLE} (
        version INTEGER NOT NULL, tenant INTEGER NOT NULL, client_id TEXT NOT NULL, value BLOB NOT NULL,
        PRIMARY KEY (version, tenant, client_id)) WITHOUT ROWID""",
    f"CREATE TABLE {MARK_TABLE} (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
)

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
_NO_RECORD = b"?"


def hbase_table(namespace: str, name: str) -> str:
    """Return the name of a table with its namespace."""
    return f"{namespace}:{name}"


def missing_tables(*names: str) -> str:
    """Say that tables are not there, and what makes them."""
    return f"missing in HBase: {', '.join(names)}; {CREATE_TABLES}"


def encode_state_cell(offset: int, record: bytes) -> bytes:
    """Return the cell of a session: a version, the offset that its record includes, the record; without one it is gone."""
    return _HEAD.pack(_CELL_VERSION, offset) + record


def decode_state_row(key: bytes, value: bytes) -> tuple[int, str, int, bytes]:
    """Return (tenant id, client id, offset, record) of a row; no record: the session is gone.

    Of a damaged row the record is one that `decode_state` refuses: whoever reads it counts it there.
    """
    try:
        tenant_id, client_id = session_of_state(key)
    except CorruptRecordError:
        return int.from_bytes(key[:TENANT_BYTES], "big"), key[TENANT_BYTES:].decode(errors="replace"), 0, _NO_RECORD
    if len(value) < _HEAD.size or value[0] != _CELL_VERSION:
        return tenant_id, client_id, 0, value or _NO_RECORD
    _, offset = _HEAD.unpack_from(value)
    return tenant_id, client_id, offset, value[_HEAD.size :]


def encode_applied(offsets: tuple[int, ...]) -> bytes:
    """Return the cell of the applied offsets: a version, how many, and each in 8 bytes."""
    return _COUNT.pack(_CELL_VERSION, len(offsets)) + struct.pack(f">{len(offsets)}Q", *offsets)


def decode_applied(value: bytes, where: str) -> tuple[int, ...]:
    """Read the cell of the applied offsets. Raises CorruptRecordError: it is damaged, or of another version."""
    try:
        version, count = _COUNT.unpack_from(value)
        if version == _CELL_VERSION:
            return struct.unpack(f">{count}Q", value[_COUNT.size :])
    except struct.error:
        pass
    raise CorruptRecordError(f"{where}: damaged ({value[:16].hex() or 'empty'})")


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
