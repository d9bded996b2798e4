"""`iothub events`: the log's end, its lag and its soundness, beside a hub or without one, whatever the driver."""

from __future__ import annotations

import json
import sqlite3
from types import SimpleNamespace

import pytest

from iothub.base.errors import BackendError
from iothub.config.datadir import DataDir
from iothub.hub.stores import drivers
from iothub.records import events
from iothub.records.events import Event, EventType, Subject
from iothub_services.events.kafka.log import KafkaEvents
from tests.support.hubs.left_behind import left_behind
from tests.support.in_process.command import Cli
from tests.support.servers.fake_kafka import SETTINGS, FakeCluster

NOON_MS = 1_800_000_000_000


def happened(number: int, client_id: str = "c1", tenant_id: int = 1) -> Event:
    return events.session_discarded(Subject(tenant_id, client_id, 3, NOON_MS + number), reason=f"why {number}")


@pytest.fixture
def busy(acme: Cli) -> Cli:
    """A log of five events of two tenants, and one for analytics."""
    will = events.will_set(
        Subject(1, "c2", 3, NOON_MS + 4), topic="w", payload=b"secret", qos=1, retain=False, properties=b"", delay_s=0
    )
    with left_behind(DataDir(acme.data_dir)) as written:
        written.log.append([happened(1), happened(2, "c2"), happened(3, tenant_id=99), happened(5), will])
        written.log.append([Event(EventType.USAGE_COUNTED, 1, "", 0, NOON_MS)])
        written.states.apply((2,), [])
    return acme


def test_tail_shows_the_newest_events_oldest_first(busy: Cli) -> None:
    rows = busy.rows("events", "tail", "--count", "3")

    assert [(row["client_id"], row["offset"]) for row in rows] == [("c1", 3), ("c1", 4), ("c2", 5)]
    assert rows[0] == {
        "time": "2027-01-15T08:00:00Z",
        "name": "session.discarded",
        "tenant": None,
        "tenant_id": 99,
        "client_id": "c1",
        "epoch": 3,
        "partition": 0,
        "offset": 3,
        "facts": {"reason": "why 3"},
    }


def test_tail_of_a_tenant_or_a_client_looks_at_the_whole_log(busy: Cli) -> None:
    of_tenant = busy.rows("events", "tail", "--tenant", "acme", "--count", "2")
    of_client = busy.rows("events", "tail", "--client", "c2")

    assert [row["offset"] for row in of_tenant] == [4, 5]
    assert [row["offset"] for row in of_client] == [2, 5]
    assert [row["name"] for row in busy.rows("events", "tail", "--topic", "analytics")] == ["usage.counted"]


def test_tail_keeps_the_payload_of_a_will_out_of_a_table(busy: Cli) -> None:
    """A script has it: c2VjcmV0."""
    assert "c2VjcmV0" not in busy("events", "tail").out
    assert "c2VjcmV0" in busy("events", "tail", "-o", "json").out


def test_tail_of_an_unknown_tenant_is_refused(busy: Cli) -> None:
    assert "there is no tenant 'nobody'" in busy("events", "tail", "--tenant", "nobody", code=3).err


def test_tail_follows_what_comes(busy: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event once, one line each, until somebody interrupts."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 2:
            raise KeyboardInterrupt
        with left_behind(DataDir(busy.data_dir)) as written:
            written.log.append([happened(10 + len(pauses))])

    monkeypatch.setattr("iothub.cli.events.time", SimpleNamespace(sleep=pause))
    lines = busy("events", "tail", "--count", "1", "--follow", "-o", "json", code=130).out.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [5, 6, 7]

    pauses.clear()
    text = busy("events", "tail", "--count", "1", "--follow", code=130).out
    assert text.splitlines()[0].startswith("2027-01-15T08:00:00Z  session.discarded  acme  c1  3  0  7  reason=why 12")


def test_tail_names_tenants(busy: Cli) -> None:
    """One that is gone by its number."""
    lines = [line.split() for line in busy("events", "tail").out.splitlines()]
    rows = busy.rows("events", "tail")

    assert [line[2] for line in lines] == ["TENANT", "acme", "acme", "99", "acme", "acme"]
    assert [(row["tenant"], row["tenant_id"]) for row in rows[1:3]] == [("acme", 1), (None, 99)]


def test_tail_without_accounts_has_numbers_and_a_warning(busy: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log can be read all the same."""

    def fail(_registry: object) -> None:
        raise BackendError("the accounts database does not answer", retryable=True)

    monkeypatch.setattr("iothub_tenants.accounts.registry.Registry.tenant_names", fail)

    result = busy("events", "tail", "--count", "2")

    assert [line.split()[2] for line in result.out.splitlines()] == ["TENANT", "1", "1"]
    assert result.err == "iothub: warning: tenants are shown by their numbers: the accounts database does not answer\n"


def test_lag_says_how_far_the_states_are_behind(busy: Cli) -> None:
    assert busy.rows("events", "lag") == [{"partition": 0, "begin": 1, "end": 5, "events": 5, "applied": 2, "lag": 3}]


def test_verify_reads_everything(busy: Cli) -> None:
    assert busy("events", "verify", "-o", "json").json == {
        "events": 5,
        "partitions": 1,
        "damaged": 0,
        "damage": [],
    }


def test_verify_names_what_is_damaged(busy: Cli) -> None:
    """With exit code 1; the tail leaves it out, with a warning."""
    with sqlite3.connect(busy.data_dir / "events.db") as connection:
        connection.execute("UPDATE session_event SET value = CAST('damaged' AS BLOB) WHERE offset = 2")

    result = busy("events", "verify", "-o", "json", code=1)

    assert result.json["damage"] == ["event log, offset 2: damaged event (it is not JSON)"]
    assert "the log has 1 damaged event, which hubs and jobs pass over" in result.err
    assert "offset 2: damaged event (it is not JSON): passed over" in busy("events", "tail").err


def test_events_before_the_first_hub_are_not_there(cli: Cli) -> None:
    for verb in ("tail", "lag", "verify"):
        assert "there is no event log yet: the first" in cli("events", verb, code=3).err


def test_events_on_kafka_are_shown_by_partition(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """One key is in one partition; what is in a wrong one is named."""
    cluster = FakeCluster()
    KafkaEvents(SETTINGS, cluster=cluster).append([happened(number, f"client-{number}") for number in range(30)])
    log = cluster.topics["iothub.session-events"].partitions
    monkeypatch.setattr(
        drivers, "kafka_log", lambda _settings, is_read_only: KafkaEvents(SETTINGS, is_read_only=True, cluster=cluster)
    )
    with (acme.data_dir / "iothub.toml").open("a") as file:
        file.write('\n[events]\ndriver = "kafka"\n[kafka]\nbrokers = ["kafka-1:9092"]\n')

    rows = acme.rows("events", "tail", "--count", "5")
    assert [row["facts"]["reason"] for row in rows] == [f"why {number}" for number in range(25, 30)]
    assert [row["end"] for row in acme.rows("events", "lag")] == [len(records) for records in log]

    log[0].append(log[1][0])
    result = acme("events", "verify", "-o", "json", code=1)
    assert result.json["damage"] == [
        f"topic iothub.session-events, partition 0, Kafka's offset {len(log[0]) - 1}: "
        "damaged event (its key belongs to partition 1)"
    ]
    assert "damaged event (its key belongs to partition 1): passed over" in acme("events", "tail").err
