"""Persistent sessions and their queues from the command line: read beside a hub, changed by it, or here when none runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from iothub.base.errors import NotFoundError
from iothub.cli import stores
from iothub.config.datadir import DataDir
from iothub.records import events, keys
from iothub.records.admin_commands import Verb
from iothub.records.events import Subject
from iothub.records.message import StoredMessage, encode_message
from iothub.records.state import encode_state, fold
from iothub.testing.checkpoint_contract import pointer_to
from iothub.testing.clock import ManualClock
from iothub_services.queues.port import Append, Delivery, QueueLimits
from iothub_services.queues.several import SeveralQueues
from iothub_services.sqlite.database import connect, open_database
from iothub_services.state.port import StateWrite, StoredState
from iothub_services.state.sqlite.checkpoints import SCHEMA as CHECKPOINTS
from iothub_services.state.sqlite.checkpoints import SqliteCheckpoints
from tests.support.answering import AnsweringHub
from tests.support.command import Cli
from tests.support.hbase_plain import PlainHBase

NOON_MS = 1_800_000_000_000


def tenant_id(cli: Cli, name: str) -> int:
    return int(cli("tenant", "show", name, "-o", "json").json["id"])


def append(cli: Cli, *happened: events.Event, is_applied: bool = False) -> None:
    """Put events into the log; `is_applied`: and, folded, into the state store, as the state service does."""
    with stores.working_alone(DataDir(cli.data_dir), "test") as alone:
        assert alone is not None
        logged = alone.log.append(list(happened))
        if is_applied:
            state = None
            for _, offset, event in logged:
                state = fold(state, event, offset)
            assert state is not None
            write = StateWrite(state.tenant_id, state.client_id, state.offset, encode_state(state))
            alone.states.apply(alone.log.end(), [write])


def born(tenant: int, client_id: str, queue_id: int) -> list[events.Event]:
    subject = Subject(tenant, client_id, queue_id << 24, NOON_MS)
    return [
        events.session_created(subject, device="dev1", queue_id=queue_id, protocol_version=5, session_expiry_s=3600),
        events.session_subscribed(
            subject,
            topic_filter="a/#",
            group="g",
            qos=1,
            no_local=False,
            retain_as_published=False,
            retain_handling=0,
            identifier=0,
        ),
        events.session_disconnected(subject, reason="client"),
    ]


def queue_up(cli: Cli, tenant: int, queue_id: int, *payloads: bytes) -> None:
    with stores.working_alone(DataDir(cli.data_dir), "test") as alone:
        assert alone is not None
        alone.queues.create(tenant, queue_id, QueueLimits(), queue_id << 24)
        for number, payload in enumerate(payloads):
            body = encode_message(StoredMessage(b"a/b", payload, 1, False, b"", 0, b"", "c9"))
            alone.queues.append([Append(bytes([number]) * 16, body, 0, (Delivery(queue_id, 1),))])


@pytest.fixture
def busy(acme: Cli) -> Cli:
    """Sessions `c1` (folded into the state store) and `c2` (only in the log's tail) of acme; `c1` of zeta."""
    acme("tenant", "create", "zeta")
    owner, other = tenant_id(acme, "acme"), tenant_id(acme, "zeta")
    append(acme, *born(owner, "c1", 1), is_applied=True)
    append(acme, *born(owner, "c2", 2))
    append(acme, *born(other, "c1", 3))
    queue_up(acme, owner, 1, b"one", b"\xff", b"three")
    queue_up(acme, owner, 2)
    queue_up(acme, other, 3, b"secret of zeta")
    return acme


def names(cli: Cli, noun: str, *words: str, tenant: str = "acme") -> list[str]:
    return [row["name"] for row in cli.rows(noun, "list", tenant, *words)]


def test_sessions_that_only_a_checkpoint_has_are_there(busy: Cli) -> None:
    """A hub that began with it has died before the states had them, and the log is trimmed: the next start has them, too."""
    owner, data_dir = tenant_id(busy, "acme"), DataDir(busy.data_dir)
    with stores.working_alone(data_dir, "test") as alone:
        assert alone is not None
        rows = [
            StoredState(owner, name, state.offset, encode_state(state)) for name, state in alone.sessions(owner).items()
        ]
        upto = alone.log.end()
        alone.log.trim(upto)
    with closing(SqliteCheckpoints(open_database(data_dir.checkpoints, CHECKPOINTS, ManualClock(), print))) as made:
        made.write(4, rows)
        assert made.move(None, pointer_to(4, rows, upto))
    data_dir.state.unlink()
    append(busy, *born(owner, "c4", 4))

    assert names(busy, "session") == ["c1", "c2", "c4"]
    assert names(busy, "session", tenant="zeta") == []
    busy("session", "discard", "acme", "c2", "--yes")
    assert names(busy, "session") == ["c1", "c4"]


def test_session_with_a_damaged_state_is_passed_over(busy: Cli) -> None:
    """With a warning; every command goes on with the others, and a tenant is deleted all the same."""
    with closing(connect(DataDir(busy.data_dir).state)) as database:
        database.execute("UPDATE session SET record = CAST(replace(record, '\"v\":1', '\"v\":2') AS BLOB)")
    warning = "session 'c1': damaged session state (format version 2, expected 1): passed over"

    for noun in ("session", "queue"):
        assert names(busy, noun) == ["c2"]
        assert warning in busy(noun, "list", "acme").err
    busy("session", "show", "acme", "c1", code=3)
    busy("session", "discard", "acme", "c2", "--yes")
    busy("tenant", "delete", "acme", "--confirm", "acme")


def test_sessions_are_listed_from_state_and_tail(busy: Cli) -> None:
    """State is checkpoint + tail folded, here as in the hub."""
    rows = busy.rows("session", "list", "acme")

    assert [(row["name"], row["device"], row["queued_messages"]) for row in rows] == [
        ("c1", "dev1", 3),
        ("c2", "dev1", 0),
    ]
    assert rows[0]["version"] == "5.0"
    assert rows[0]["expires"] == "2027-01-15T09:00:00Z"
    assert names(busy, "session", tenant="zeta") == ["c1"]
    assert names(busy, "session", "--after", "c1") == ["c2"]
    assert names(busy, "session", "--limit", "1") == ["c1"]


@pytest.mark.parametrize("noun", ["session", "queue"])
def test_list_that_ends_at_its_limit_says_how_to_go_on(busy: Cli, noun: str) -> None:
    cut = busy(noun, "list", "acme", "--limit", "1", "-o", "json")

    assert "more behind --limit; go on with --after=c1" in cut.err
    assert [row["name"] for row in cut.json] == ["c1"]
    assert "--limit" not in busy(noun, "list", "acme", "--limit", "2").err


def test_session_is_shown_with_its_subscriptions(busy: Cli) -> None:
    shown = busy("session", "show", "acme", "c1", "-o", "json").json

    assert shown["subscriptions"] == [{"name": "$share/g/a/#", "qos": 1, "no_local": False}]
    assert (shown["queue_id"], shown["disconnect_reason"], shown["is_connected"]) == (1, "client", False)
    assert shown["session_expiry_s"] == 3600
    lines = busy("session", "show", "acme", "c1").out.splitlines()
    assert lines[-3:] == ["subscriptions", "NAME          QOS  NO LOCAL", "$share/g/a/#  1    no"]


def test_connected_session_has_no_time_of_its_end(busy: Cli) -> None:
    """The record keeps one of its beginning, which is no answer to "since when is it away?"."""
    subject = Subject(tenant_id(busy, "acme"), "c1", 1 << 24, NOON_MS + 1000)
    connected = events.session_connected(
        subject, device="dev1", protocol_version=5, session_expiry_s=3600, peer="192.0.2.7:1", keep_alive_s=60
    )
    append(busy, connected)

    shown = busy("session", "show", "acme", "c1", "-o", "json").json

    assert (shown["is_connected"], shown["connected"]) == (True, "2027-01-15T08:00:01Z")
    assert (shown["disconnected"], shown["disconnect_reason"]) == (None, None)


def test_session_without_an_end_says_so(busy: Cli) -> None:
    """4294967295 is how the protocol writes it (§3.1.2.11.2)."""
    subject = Subject(tenant_id(busy, "acme"), "c9", 9 << 24, NOON_MS)
    expiry_s = 0xFFFFFFFF
    append(
        busy,
        events.session_created(subject, device="dev1", queue_id=9, protocol_version=5, session_expiry_s=expiry_s),
    )

    assert busy("session", "show", "acme", "c9", "-o", "json").json["session_expiry_s"] == "never"


def test_queue_is_shown_readably(busy: Cli) -> None:
    """One line per message, and no limit is no figure."""
    with stores.working_alone(DataDir(busy.data_dir), "test") as alone:
        assert alone is not None
        alone.queues.set_limits([(1, QueueLimits(messages=0, bytes=5))])

    limits = busy("queue", "show", "acme", "c1", "-o", "json").json["limits"]
    lines = busy("queue", "show", "acme", "c1").out.splitlines()

    assert limits == {"messages": "unlimited", "bytes": 5, "overflow": "drop-qos0-first"}
    assert "limits    messages=unlimited bytes=5 overflow=drop-qos0-first" in lines
    assert lines[-5:-3] == ["oldest messages", "POSITION  TOPIC  QOS  BYTES  EXPIRES  PAYLOAD"]
    assert lines[-3].split() == ["1", "a/b", "1", "3", "-", "one"]


def test_unknown_session_is_not_found(busy: Cli) -> None:
    for words in (
        ("session", "show", "acme", "c3"),
        ("session", "discard", "acme", "c3"),
        ("queue", "show", "acme", "c3"),
        ("queue", "purge", "zeta", "c2"),
        ("session", "list", "nobody"),
    ):
        busy(*words, code=3)


def test_queues_are_listed_and_shown(busy: Cli) -> None:
    assert [(row["name"], row["messages"]) for row in busy.rows("queue", "list", "acme")] == [("c1", 3), ("c2", 0)]

    shown = busy("queue", "show", "acme", "c1", "--messages", "2", "-o", "json").json
    assert [(message["position"], message["payload_bytes"]) for message in shown["oldest"]] == [(1, 3), (2, 1)]
    assert shown["oldest"][0]["payload"] == "one"
    assert shown["limits"]["overflow"] == "drop-qos0-first", "as the setting is written"
    assert "c1" in busy("queue", "show", "acme", "c1").out


def test_record_that_cannot_be_read_is_shown(busy: Cli) -> None:
    """A session that stands still looks idle otherwise."""
    for noun in ("queue", "session"):
        assert busy(noun, "show", "acme", "c1", "-o", "json").json["unreadable"] is None
    with connect(DataDir(busy.data_dir).queues) as connection:
        where = "id = (SELECT body FROM ref WHERE queue = 1 AND position = 2)"
        (body,) = connection.execute(f"SELECT b FROM body WHERE {where}").fetchone()
        connection.execute(f"UPDATE body SET b = ? WHERE {where}", (b"\7" + body[1:],))
    connection.close()

    for noun in ("queue", "session"):
        shown = busy(noun, "show", "acme", "c1", "-o", "json").json["unreadable"]
        assert shown["position"] == 2
        assert "version 7" in shown["why"]
        assert "position=2" in busy(noun, "show", "acme", "c1").out


def test_driver_of_a_queue_is_shown(busy: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays what it was when the queue was made, whatever the settings say now."""
    hbase, owner = PlainHBase(), tenant_id(busy, "acme")
    store, _ = hbase.store(1)
    store.create(owner, 7, QueueLimits())
    append(busy, *born(owner, "c7", 7))
    monkeypatch.setattr(stores, "hbase_queues", lambda *_: store)
    monkeypatch.setattr(stores, "_connected", lambda *_: None)
    with (busy.data_dir / "iothub.toml").open("a") as file:
        file.write('\n[queues]\ndriver = "hbase-plain"\n[hbase]\nthrift = ["127.0.0.1:1"]\n')

    assert [(row["name"], row["driver"]) for row in busy.rows("queue", "list", "acme")] == [
        ("c1", "sqlite"),
        ("c2", "sqlite"),
        ("c7", "hbase-plain"),
    ]
    assert busy("queue", "list", "acme").out.splitlines()[1].split()[:2] == ["c1", "sqlite"]
    for client_id, driver in (("c1", "sqlite"), ("c7", "hbase-plain")):
        assert busy("queue", "show", "acme", client_id, "-o", "json").json["driver"] == driver
        assert busy("session", "show", "acme", client_id, "-o", "json").json["queue_driver"] == driver


@pytest.fixture
def rows(busy: Cli, monkeypatch: pytest.MonkeyPatch) -> dict[bytes, dict[bytes, tuple[bytes, int]]]:
    """The queues of acme lie in `hbase-plain`; returns the rows of its table."""
    hbase, owner = PlainHBase(), tenant_id(busy, "acme")
    writer, _ = hbase.store(1)
    for queue_id in (1, 2):
        writer.create(owner, queue_id, QueueLimits())
        writer.claim(queue_id, b"hub")
    body = encode_message(StoredMessage(b"a/b", b"one", 1, False, b"", 0, b"", "c9"))
    for number in (1, 2):
        writer.append([Append(bytes([number]) * 16, body, 0, (Delivery(1, 1),))])

    @contextmanager
    def reading(*_: object) -> Iterator[SeveralQueues]:
        yield SeveralQueues({"hbase-plain": hbase.store(2)[0]}, "hbase-plain")

    monkeypatch.setattr(stores, "reading_queues", reading)
    return hbase.rows


def spoil(rows: dict[bytes, dict[bytes, tuple[bytes, int]]], row: bytes, column: bytes) -> None:
    value, time = rows[row][column]
    rows[row][column] = (b"\7" + value[1:], time)


def test_last_batch_of_hbase_plain_that_cannot_be_read_is_shown(
    busy: Cli, rows: dict[bytes, dict[bytes, tuple[bytes, int]]]
) -> None:
    """Of its queue and session alone; the lists of the tenant are whole."""
    spoil(rows, keys.record_row(keys.queue_key(1, tenant_id(busy, "acme")), 2), b"d:b")

    for noun in ("queue", "session"):
        shown = busy(noun, "show", "acme", "c1", "-o", "json").json["unreadable"]
        assert shown["position"] == 2
        assert "version 7" in shown["why"]
        assert names(busy, noun) == ["c1", "c2"]


def test_queue_of_hbase_plain_of_which_nothing_can_be_read_is_told(
    busy: Cli, rows: dict[bytes, dict[bytes, tuple[bytes, int]]]
) -> None:
    """Its session is shown; the list of queues has it with the reason, and without figures."""
    spoil(rows, keys.meta_row(keys.queue_key(1, tenant_id(busy, "acme"))), b"m:s")

    shown = busy("session", "show", "acme", "c1", "-o", "json").json["unreadable"]
    assert shown["position"] is None
    assert "version 7" in shown["why"]
    assert "version 7" in busy("queue", "show", "acme", "c1", code=7).err
    assert names(busy, "session") == ["c1", "c2"]
    listed = busy.rows("queue", "list", "acme")
    assert [(row["name"], "version 7" in str(row.get("unreadable")), "messages" in row) for row in listed] == [
        ("c1", True, False),
        ("c2", False, True),
    ]
    assert "version 7" in busy("queue", "list", "acme").out
    assert [row["queued_messages"] for row in busy.rows("session", "list", "acme")] == [None, 0]
    assert "a queue that cannot be read" in busy("session", "discard", "acme", "c1", "--dry-run").err
    assert "version 7" in busy("queue", "purge", "acme", "c1", "--dry-run", code=7).err


def test_session_is_discarded_here_when_no_hub_runs(busy: Cli) -> None:
    busy("session", "discard", "acme", "c1", "--dry-run")
    assert names(busy, "session") == ["c1", "c2"]

    busy("session", "discard", "acme", "c1")

    assert names(busy, "session") == ["c2"]
    assert names(busy, "queue") == ["c2"]
    assert names(busy, "queue", tenant="zeta") == ["c1"]
    busy("session", "discard", "acme", "c1", code=3)


def test_queue_is_purged_here_when_no_hub_runs(busy: Cli) -> None:
    assert busy("queue", "purge", "acme", "c1", "--dry-run", "-o", "json").json["messages"] == 3
    assert busy("queue", "purge", "acme", "c1", "-o", "json").json["messages"] == 3

    assert [row["messages"] for row in busy.rows("queue", "list", "acme")] == [0, 0]
    assert [row["messages"] for row in busy.rows("queue", "list", "zeta")] == [1]
    assert names(busy, "session") == ["c1", "c2"]


def test_running_hub_discards_and_purges(busy: Cli) -> None:
    """Both go through the command table; the stores are the hub's while it runs."""
    with AnsweringHub(busy.data_dir, lambda _command: {"messages": 3}) as hub:
        busy("session", "discard", "acme", "c2")
        purged = busy("queue", "purge", "acme", "c1", "-o", "json").json

    assert purged["messages"] == 3
    assert hub.seen == [
        ("acme", "session.discard", {"client_id": "c2"}),
        ("acme", "queue.purge", {"client_id": "c1"}),
    ]
    assert names(busy, "session") == ["c1", "c2"]


def test_session_unknown_to_the_hub_is_not_found(busy: Cli) -> None:
    def refuse(_command: object) -> dict[str, object]:
        raise NotFoundError("tenant acme has no session 'c9'")

    with AnsweringHub(busy.data_dir, refuse):
        assert busy("session", "discard", "acme", "c9", code=3).err == "iothub: tenant acme has no session 'c9'\n"


def test_lists_are_read_beside_a_running_hub(busy: Cli) -> None:
    with AnsweringHub(busy.data_dir, None):
        assert names(busy, "session") == ["c1", "c2"]
        assert names(busy, "queue") == ["c1", "c2"]


def test_deleted_tenant_leaves_nothing_in_any_store(busy: Cli) -> None:
    """A successor of the same name finds no session, no message and no figure."""
    owner = tenant_id(busy, "acme")
    busy("tenant", "delete", "acme", "--confirm", "acme")

    with stores.working_alone(DataDir(busy.data_dir), "test") as alone:
        assert alone is not None
        assert alone.sessions(owner) == {}
        assert alone.queues.list_queues(owner) == []
        assert list(alone.states.load(owner)) == []
    assert names(busy, "queue", tenant="zeta") == ["c1"]


def test_store_of_a_newer_program_is_left_alone(busy: Cli) -> None:
    database = connect(DataDir(busy.data_dir).queues)
    database.execute("PRAGMA user_version = 99")
    database.close()

    assert "schema version 99" in busy("queue", "list", "acme", code=4).err
    assert "schema version 99" in busy("queue", "purge", "acme", "c1", code=4).err


def test_damaged_store_is_one_line(busy: Cli) -> None:
    """Beside a hub a damaged file is not repaired by the command line."""
    with AnsweringHub(busy.data_dir, None):
        (busy.data_dir / "state.db").write_bytes(b"not a database, whatever it was" * 500)

        result = busy("session", "list", "acme", code=7)

    assert result.err.count("\n") == 1


def test_deleted_device_leaves_no_session(busy: Cli) -> None:
    """Done here when no hub runs; another tenant's device of the same name keeps its own."""
    busy("device", "create", "zeta", "dev1", "--password-stdin", stdin=b"secret")

    busy("device", "delete", "acme", "dev1")

    assert busy("session", "list", "acme", "-o", "json").json == []
    assert busy("queue", "list", "acme", "-o", "json").json == []
    assert [row["name"] for row in busy("session", "list", "zeta", "-o", "json").json] == ["c1"]
    busy("device", "create", "acme", "dev1", "--password-stdin", stdin=b"secret")
    assert busy("session", "list", "acme", "-o", "json").json == []


def test_device_deleted_beside_a_hub_waits_for_it(busy: Cli) -> None:
    """The hub ends the sessions; it has obeyed when it answers."""
    with AnsweringHub(busy.data_dir, lambda _command: {}) as hub:
        busy("device", "delete", "acme", "dev1")

    assert hub.seen == [("", Verb.PING, {"node": 0})]
    assert len(busy("session", "list", "acme", "-o", "json").json) == 2
