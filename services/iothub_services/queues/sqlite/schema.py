"""The tables of `queues.db`.

Knows SQL only. Bodies are appended and stored once; fan-out costs references. The layout is measured: one table (queue, position, body)
takes about three times the CPU per message. `body.id` is never in use twice at a time, so a reference can only be older than or as old as
its body. `ref.is_shared`: more than one reference was made.
"""

from __future__ import annotations

from iothub_services.sqlite.database import Schema

_JOURNAL = "CREATE TABLE journal (flushed INTEGER PRIMARY KEY)"
# `flushed`: the last segment of which nothing is needed any more. `done`: the last one of which the tables lack only messages above their queue's
# `moved`; the one behind it is there. -1: the journal was put into the tables, and no segment has to be there.
_DONE = "ALTER TABLE journal ADD COLUMN done INTEGER NOT NULL DEFAULT -1"
_MOVED = "ALTER TABLE queue ADD COLUMN moved INTEGER NOT NULL DEFAULT 0"

SCHEMA = Schema(
    name="queues",
    version=3,
    page_bytes=8_192,  # a quarter less CPU per append than 4,096
    is_overwritten=False,  # else each message is written once more when it is removed
    tables={
        "queue": "queues",
        "body": "message bodies",
        "ref": "messages in queues",
        "inbound": "open QoS 2 identifiers of publishers",
        "released": "QoS 2 messages that receivers have seen",
        "dropped": "queues to be cleared away",
        "journal": "marks of the journal",
    },
    statements=(
        "CREATE TABLE body (id INTEGER PRIMARY KEY, b BLOB NOT NULL)",
        """CREATE TABLE queue (
            id INTEGER PRIMARY KEY, tenant INTEGER NOT NULL,
            tail INTEGER NOT NULL, head INTEGER NOT NULL, epoch INTEGER NOT NULL, reserved INTEGER NOT NULL,
            messages INTEGER NOT NULL, bytes INTEGER NOT NULL, qos0 INTEGER NOT NULL,
            max_messages INTEGER NOT NULL, max_bytes INTEGER NOT NULL, overflow INTEGER NOT NULL, owner BLOB NOT NULL)""",
        "CREATE INDEX queue_tenant ON queue (tenant)",
        """CREATE TABLE ref (
            queue INTEGER NOT NULL, position INTEGER NOT NULL, body INTEGER NOT NULL, size INTEGER NOT NULL,
            qos INTEGER NOT NULL, flags INTEGER NOT NULL, expires_at_ms INTEGER NOT NULL, message_id BLOB,
            subscription_ids TEXT, is_shared INTEGER NOT NULL, PRIMARY KEY (queue, position)) WITHOUT ROWID""",
        "CREATE UNIQUE INDEX ref_message ON ref (queue, message_id) WHERE qos = 2",
        "CREATE INDEX ref_qos0 ON ref (queue, position) WHERE qos = 0",
        "CREATE INDEX ref_expiry ON ref (expires_at_ms) WHERE expires_at_ms > 0",
        """CREATE TABLE inbound (
            queue INTEGER NOT NULL, packet_id INTEGER NOT NULL, PRIMARY KEY (queue, packet_id)) WITHOUT ROWID""",
        """CREATE TABLE released (
            queue INTEGER NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (queue, position)) WITHOUT ROWID""",
        "CREATE TABLE dropped (queue INTEGER PRIMARY KEY)",  # queues whose records still have to be removed
        _JOURNAL,
        _DONE,
        _MOVED,
    ),
    upgrades={1: (_JOURNAL,), 2: (_DONE, _MOVED)},
    repairs=(  # what belongs to a lost row of `queue` stays: the queue is rebuilt when the sessions are known
        "DELETE FROM ref WHERE body NOT IN (SELECT id FROM body)",
        "DELETE FROM body WHERE id NOT IN (SELECT body FROM ref)",
        # never issue a position again, not even when the queue's own row is older than its records
        """UPDATE queue SET
            tail = max(tail, head, (SELECT coalesce(max(position), 0) FROM ref WHERE ref.queue = queue.id)),
            messages = (SELECT count(*) FROM ref WHERE ref.queue = queue.id),
            bytes = (SELECT coalesce(sum(size), 0) FROM ref WHERE ref.queue = queue.id),
            qos0 = (SELECT count(*) FROM ref WHERE ref.queue = queue.id AND qos = 0)""",
    ),
)

# What is there of queues whose own row is lost, and its removal when no session has such a queue.
SUM_OF_LOST = """SELECT queue, min(position), max(position), count(*), sum(size), sum(qos = 0) FROM ref
    WHERE queue NOT IN (SELECT id FROM queue) GROUP BY queue"""
RELEASED_OF_LOST = """SELECT queue, min(position), max(position) FROM released
    WHERE queue NOT IN (SELECT id FROM queue) GROUP BY queue"""
CLEAR_LOST = (
    "DELETE FROM dropped WHERE queue IN (SELECT id FROM queue)",
    "INSERT OR IGNORE INTO dropped SELECT DISTINCT queue FROM ref WHERE queue NOT IN (SELECT id FROM queue)",
    "DELETE FROM inbound WHERE queue NOT IN (SELECT id FROM queue)",
    "DELETE FROM released WHERE queue NOT IN (SELECT id FROM queue)",
)

INSERT_BODY = "INSERT INTO body VALUES (?, ?)"
INSERT_REF = "INSERT INTO ref VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_QUEUE = "INSERT INTO queue VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
UPDATE_COUNTERS = "UPDATE queue SET tail = ?, messages = ?, bytes = ?, qos0 = ?, moved = ? WHERE id = ?"
UPDATE_QUEUE = """UPDATE queue SET head = ?, epoch = ?, reserved = ?, max_messages = ?, max_bytes = ?, overflow = ?, owner = ?
    WHERE id = ?"""
SELECT_QUEUE = "SELECT * FROM queue WHERE id = ?"
SELECT_STANDING = """SELECT id, tenant, messages, bytes, head, tail, epoch, max_messages, max_bytes, overflow
    FROM queue WHERE tenant = ? ORDER BY id"""
SELECT_PAGE = """SELECT ref.position, ref.qos, ref.flags, ref.subscription_ids, ref.expires_at_ms, body.b
    FROM ref LEFT JOIN body ON body.id = ref.body WHERE ref.queue = ? AND ref.position > ? ORDER BY ref.position LIMIT ?"""
# `> 0` makes SQLite choose the index. It must be last: SQLite starts at the first lower bound that it reads, and would else pass all earlier rows.
SELECT_EXPIRED = """SELECT expires_at_ms, queue, position FROM ref
    WHERE expires_at_ms > ? AND expires_at_ms <= ? AND expires_at_ms > 0 ORDER BY expires_at_ms, queue, position LIMIT ?"""
# The rest of a mark's own millisecond: by itself, or each look would begin with all of it that stays. One message may be in 100,000 queues.
SELECT_EXPIRED_TOO = """SELECT expires_at_ms, queue, position FROM ref
    WHERE expires_at_ms = ? AND expires_at_ms <= ? AND (queue, position) > (?, ?) AND expires_at_ms > 0
    ORDER BY queue, position LIMIT ?"""
SELECT_SIZES = "SELECT position, size FROM ref WHERE queue = ? AND position <= ? ORDER BY position LIMIT ?"
DELETE_UPTO = "DELETE FROM ref WHERE queue = ? AND position <= ? RETURNING size, qos, body, is_shared"
DELETE_ONE = "DELETE FROM ref WHERE queue = ? AND position = ? RETURNING size, qos, body, is_shared"
DELETE_EXPIRED = """DELETE FROM ref WHERE queue = ? AND position = ? AND expires_at_ms > 0 AND expires_at_ms <= ?
    RETURNING size, qos, body, is_shared"""
DELETE_SOME = """DELETE FROM ref WHERE queue = ? AND position IN
    (SELECT position FROM ref WHERE queue = ? ORDER BY position LIMIT ?) RETURNING size, qos, body, is_shared"""
