"""How a run begins and ends: what is refused before Spark is started, and how an error that Spark wrapped is told."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from iothub.base.errors import BackendError, ConfigError, ConflictError, CorruptRecordError, NotFoundError
from iothub.records.job_catalogue import CATALOGUE
from iothub.records.job_spec import Spec, write_spec
from iothub_spark import main
from iothub_spark.failures import kind_of, translated
from iothub_spark.jobs.table import JOBS
from iothub_spark.report import Report, watched
from tests.support.jobs.spark import sqlite_spec


def _run(folder: Path, spec: Spec, job: str = "compact_events") -> int:
    (folder / "spec.json").write_text(write_spec(spec), encoding="utf-8")
    return main.main([job, "--spec", str(folder / "spec.json")])


def test_every_job_of_the_catalogue_is_there() -> None:
    assert JOBS.keys() == CATALOGUE.keys()


@pytest.mark.parametrize(
    ("spec", "job", "text"),
    [
        (
            sqlite_spec(Path("x"), nonsense=True),
            "compact_events",
            "options.nonsense: job compact_events has no such option",
        ),
        (sqlite_spec(Path("x"), full="yes"), "compact_events", "options.full: expected a flag, got 'yes'"),
        (sqlite_spec(Path("x"), "erase", tenant_id="a"), "erase", "options.tenant_id: expected a number, got 'a'"),
        (sqlite_spec(Path("x")), "verify", "this is the spec of job compact_events, expected one of verify"),
    ],
)
def test_wrong_spec_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spec: Spec, job: str, text: str
) -> None:
    """Before Spark is started, with exit code 2."""
    assert _run(tmp_path, spec, job) == 2
    said = json.loads(capsys.readouterr().out)
    assert (said["event"], said["kind"]) == ("failed", "config")
    assert text in said["text"]


def test_run_that_fails_says_what_kind_of_failure_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the runner: a code and a line."""
    for error, code, kind in (
        (ConflictError("gap"), 4, "conflict"),
        (BackendError("gone", retryable=True), 7, "unavailable"),
        (CorruptRecordError("bad"), 1, "corrupt"),
        (RuntimeError("Spark broke\nat org.apache"), 1, "died"),
    ):

        def run(*_: object, raised: Exception = error) -> int:
            raise raised

        monkeypatch.setattr(main, "_run", run)
        assert _run(tmp_path, replace(sqlite_spec(tmp_path), options={})) == code
        said = json.loads(capsys.readouterr().out)
        assert (said["event"], said["kind"]) == ("failed", kind)
        assert "\n" not in said["text"]


def test_error_of_a_task_is_told_as_it_was_raised() -> None:
    """Spark hands on text: the last error of ours in it counts."""
    text = "An error\n  File x\niothub.base.errors.CorruptRecordError: checkpoint 7 has 1 rows\n\tat org.apache.spark"
    found = translated(RuntimeError(text))
    assert isinstance(found, CorruptRecordError)
    assert str(found) == "checkpoint 7 has 1 rows"
    assert kind_of(translated(RuntimeError("iothub.base.errors.BackendError: no answer"))) == "unavailable"
    assert kind_of(translated(RuntimeError("iothub.base.errors.NoSuchError: x"))) == "unavailable"
    assert kind_of(NotFoundError("x")) == kind_of(ConfigError("x")) == "config"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (
            "java.io.FileNotFoundException: /hub/jobs/run-3/spark/x.data (No space left on device)",
            "/hub/jobs/run-3/spark/x.data",
        ),
        ("OSError: [Errno 28] No space left on device: '/hub/archive/part 1'", "/hub/archive/part 1"),
        ("Job aborted\njava.io.IOException: No space left on device", "Spark's files below the run's folder"),
    ],
)
def test_full_disk_is_told_as_one(text: str, where: str) -> None:
    """With the file where Java or Python names one."""
    found = translated(RuntimeError(text))

    assert str(found) == f"{where}: the disk is full: free some space, then run the job again"
    assert kind_of(found) == "unavailable"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
            "Java gateway process exited before sending its port number",
        ),
        (Py4JNetworkError("Answer from Java side is empty"), "Py4JNetworkError: Answer from Java side is empty"),
        (ConnectionRefusedError(111, "Connection refused"), "ConnectionRefusedError: [Errno 111] Connection refused"),
        (
            RuntimeError(
                "An error occurred while calling o1.save.\n: org.SparkException: Python worker exited\n\tat x"
            ),
            "RuntimeError: org.SparkException: Python worker exited; if",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_failure_of_spark_is_no_back_end_that_does_not_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception, text: str
) -> None:
    """In its own words, not in the line that py4j puts above them; what helps is memory, not waiting for a server."""

    def run(*_: object) -> int:
        raise error

    monkeypatch.setattr(main, "_run", run)

    assert _run(tmp_path, sqlite_spec(tmp_path)) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["kind"] == "died"
    assert text in said["text"]
    assert "spark.driver_memory" in said["text"]


def test_progress_of_the_stages_is_reported(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """In records, and whole at the end."""
    monkeypatch.setattr("iothub_spark.report._EVERY_S", 0.05)
    lines = io.StringIO()
    with watched(spark, Report(lines), ("read", "fold"), 1_000):
        assert spark.range(0, 100_000, 1, 8).selectExpr("sum(hash(id))").count() == 1

    said = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert said[-1] == {"event": "stage", "name": "fold", "done": 1_000, "of": 1_000, "unit": "records"}
    assert all(0 <= line["done"] <= 1_000 for line in said)


class Stages:
    """Spark as far as `watched` asks it: which stages are at work at each look, and how many of their tasks are done."""

    def __init__(self, *looks: dict[int, tuple[int, int]]) -> None:
        self.sparkContext = self
        self._looks = iter([{}, *looks])
        self._now: dict[int, tuple[int, int]] = {}
        self.is_over = threading.Event()

    def statusTracker(self) -> Stages:
        return self

    def getActiveStageIds(self) -> list[int]:
        found = next(self._looks, None)
        if found is None:
            self.is_over.set()
        self._now = found or {}
        return list(self._now)

    def getStageInfo(self, number: int) -> SimpleNamespace:
        done, of = self._now[number]
        return SimpleNamespace(numCompletedTasks=done, numTasks=of)


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        (
            [{1: (0, 4)}, {1: (2, 4), 2: (0, 2)}, {2: (1, 2)}],
            [("read", 0), ("read", 50), ("read", 100), ("fold", 0), ("fold", 50), ("fold", 100)],
        ),
        ([{1: (0, 4)}], [("read", 0), ("read", 100), ("fold", 100)]),
    ],
    ids=["two_seen", "one_seen"],
)
def test_stage_that_another_follows_ends_with_all_that_it_read(
    monkeypatch: pytest.MonkeyPatch, looks: list[dict[int, tuple[int, int]]], expected: list[tuple[str, int]]
) -> None:
    """Its last tasks end between two looks."""
    monkeypatch.setattr("iothub_spark.report._EVERY_S", 0.001)
    stages, lines = Stages(*looks), io.StringIO()
    with watched(cast(SparkSession, stages), Report(lines), ("read", "fold"), 100):
        stages.is_over.wait(30)

    said = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [(line["name"], line["done"]) for line in said] == expected
