"""`iothub.records.job_spec`: what the runner writes is what the job reads, and nothing else is taken for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.base.units import Endpoint
from iothub.records.job_spec import (
    HBaseTables,
    KafkaLog,
    SparkSettings,
    Spec,
    SqliteFile,
    parse_spec,
    read_spec,
    write_spec,
)
from iothub.records.kafka_security import KafkaSecurity

EMBEDDED = Spec(
    job="compact_events",
    run_id=7,
    events=SqliteFile(Path("/hub/events.db")),
    checkpoints=SqliteFile(Path("/hub/checkpoints.db")),
    state=SqliteFile(Path("/hub/state.db")),
    options={"full": True, "dry_run": False, "days": 3, "tenant": "acme"},
)
CLUSTER = Spec(
    job="usage",
    run_id=8,
    events=KafkaLog(
        (Endpoint("kafka-1", 9092), Endpoint("::1", 9093)),
        "iothub2",
        5.0,
        KafkaSecurity("SASL_SSL", Path("/ca.pem"), None, None, "PLAIN", "hub", Path("/secret")),
    ),
    checkpoints=HBaseTables((Endpoint("hbase-1", 9090),), "iothub2", 20.0),
    state=HBaseTables((Endpoint("hbase-1", 9090),), "iothub2", 20.0),
    archive=Path("/archive"),
    sql_url_file=Path("/url"),
    spark=SparkSettings("local[2]", "2g", 4, Path("/scratch")),
)


@pytest.mark.parametrize("spec", [EMBEDDED, CLUSTER], ids=["embedded", "cluster"])
def test_spec_comes_back_as_it_was_written(spec: Spec, tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text(write_spec(spec))

    assert read_spec(file) == spec


def test_options_say_what_is_asked_for() -> None:
    assert (EMBEDDED.is_full, EMBEDDED.is_dry_run) == (True, False)
    assert (CLUSTER.is_full, CLUSTER.is_dry_run) == (False, False)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("jobb",), 1, "unknown key 'jobb'"),
        (("job",), None, "'job' is missing"),
        (("run_id",), "7", "run_id: expected a whole number from 0 on, got '7'"),
        (("run_id",), True, "run_id: expected a whole number"),
        (("events",), [], "events: expected a JSON object, got list"),
        (("events", "driver"), "files", "events: driver: expected one of sqlite, kafka, got 'files'"),
        (("events", "driver"), ["sqlite"], "events: driver: expected one of sqlite, kafka, got list"),
        (("events", "path"), "", "events: path: expected the path of a file, got ''"),
        (("events", "brokers"), [], "events: unknown key 'brokers'"),
        (("options",), [1], "options: expected a JSON object"),
        (("options", "days"), {}, "options.days: expected a plain value"),
        (("sql_url_file",), 5, "sql_url_file: expected the path of a file"),
        (("spark", "master"), 5, "spark: master: expected a text"),
        (("spark", "cores"), 5, "spark: unknown key 'cores'"),
    ],
)
def test_what_is_not_exactly_right_is_refused_by_name(path: tuple[str, ...], value: object, text: str) -> None:
    content = json.loads(write_spec(EMBEDDED))
    place = content
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value

    with pytest.raises(ConfigError) as refused:
        parse_spec(content)

    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("brokers", [], 'brokers: expected a list such as ["host:port"]'),
        ("brokers", ["kafka-1"], "brokers: expected host:port"),
        ("timeout_s", 0, "timeout_s: expected a number of seconds"),
        ("security", {"password": "x"}, "security: unknown key 'password'"),
    ],
)
def test_kafka_is_checked_as_well(name: str, value: object, text: str) -> None:
    content = json.loads(write_spec(CLUSTER))
    content["events"][name] = value

    with pytest.raises(ConfigError) as refused:
        parse_spec(content)

    assert text in str(refused.value)


def test_what_may_be_left_out_has_its_default() -> None:
    content = {
        "job": "verify",
        "run_id": 1,
        "events": {"driver": "kafka", "brokers": ["kafka-1:9092"], "security": None},
        "checkpoints": {"driver": "hbase", "thrift": ["hbase-1:9090"]},
        "state": {"driver": "sqlite", "path": "state.db"},
    }

    spec = parse_spec(content)

    assert (spec.options, spec.archive, spec.spark) == ({}, None, SparkSettings())
    assert spec.events == KafkaLog((Endpoint("kafka-1", 9092),))


@pytest.mark.parametrize("octets", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"1" * ((1 << 20) + 1)])
def test_what_is_no_spec_is_refused(octets: bytes, tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_bytes(octets)

    with pytest.raises(ConfigError, match=r"spec\.json"):
        read_spec(file)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_spec(tmp_path / "none.json")
