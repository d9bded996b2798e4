"""The watch over Kafka: when it is asked, and what is told of an answer that does not come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from iothub.base.errors import BackendError, ConflictError
from iothub_services.streams.kafka.watch import KafkaWatch

AWAY = BackendError("no answer", retryable=True)
DEFECT = ValueError("what?")
THEIRS = ConflictError("belongs to another installation")


class Cluster:
    """Answers as it is told to."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)

    @contextmanager
    def admin(self) -> Iterator[Any]:
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer
        yield SimpleNamespace(describe_cluster=lambda: None)


def needed(cluster: Cluster) -> KafkaWatch:
    """A watch whose thread is the test."""
    watch = KafkaWatch(cluster)  # type: ignore[arg-type]
    watch._is_needed = True
    return watch


def troubles_of(watch: KafkaWatch, count: int) -> list[str]:
    troubles = []
    for _ in range(count):
        assert watch._turn()
        troubles.append(watch.trouble)
    return troubles


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ((None, AWAY, AWAY, AWAY, None), ["", "", "no answer", "no answer", ""]),
        ((AWAY, None, AWAY), ["", "", ""]),
        ((THEIRS, None), ["belongs to another installation", ""]),
    ],
    ids=["away", "late now and then", "somebody else's"],
)
def test_trouble_is_reported_after_two_silent_looks(answers: tuple[Exception | None, ...], expected: list[str]) -> None:
    """One look without an answer may be a busy machine's; whose Kafka it is leaves no doubt."""
    assert troubles_of(needed(Cluster(*answers)), len(answers)) == expected


def test_nobody_is_asked_for_nothing() -> None:
    """And what was wrong before is forgotten."""
    watch = needed(Cluster(AWAY, AWAY))
    troubles_of(watch, 2)
    watch._is_needed = False

    assert troubles_of(watch, 1) == [""]


def test_a_defect_does_not_end_it(capsys: pytest.CaptureFixture[str]) -> None:
    """One is no more than one look without an answer; after two it is not known, whatever was known before."""
    watch = needed(Cluster(DEFECT, DEFECT, AWAY, DEFECT, None, DEFECT, DEFECT))
    not_known = ("", "whether Kafka answers is not known: ValueError")

    found = [(*troubles_of(watch, 1), watch.doubt) for _ in range(7)]
    watch._is_needed = False
    found += [(*troubles_of(watch, 1), watch.doubt)]

    assert found == [("", ""), not_known, ("no answer", ""), not_known, ("", ""), ("", ""), not_known, ("", "")]
    assert "defect in the watch over Kafka" in capsys.readouterr().err


def test_it_ends_with_the_hub() -> None:
    """Its thread is begun by the first wish, and waits for nothing."""
    watch = KafkaWatch(Cluster(None))  # type: ignore[arg-type]
    watch.watch(is_needed=True)
    thread = watch._thread
    assert thread is not None

    watch.close()
    thread.join(10)

    assert not thread.is_alive()
