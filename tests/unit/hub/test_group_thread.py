"""Group commit: what arrived meanwhile goes together, order survives failures, every callback runs once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from iothub.base.errors import BackendError, CorruptRecordError
from iothub.testing.clock import ManualClock
from iothub_services import group_thread as group_module
from iothub_services.group_thread import (
    FOREVER_S,
    Bounds,
    GroupThread,
    OperationQueue,
    RetryPolicy,
    Source,
    Waiting,
)

Answers = list[object]


class Driver:
    """Remembers its batches; fails as often as told."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.failures: list[Exception] = []
        self.before: Callable[[], None] = lambda: None

    def __call__(self, ops: list[int]) -> list[object]:
        self.before()
        self.batches.append(ops)
        if self.failures:
            raise self.failures.pop(0)
        return [op * 10 for op in ops]


def full(*, is_written: bool = False) -> BackendError:
    return BackendError("disk full", retryable=True, is_written=is_written)


def group(driver: Callable[[list[int]], Answers], **settings: object) -> GroupThread[int, object]:
    clock = settings.pop("clock", None) or ManualClock()
    return GroupThread("things", driver, lambda call: call(), clock, **settings)  # type: ignore[arg-type]


class Woken(threading.Condition):
    """Counts who is woken."""

    times = 0

    def notify(self, n: int = 1) -> None:
        self.times += n
        super().notify(n)


def test_thread_is_woken_once_for_what_comes_together() -> None:
    """And again when it has looked in vain."""
    pending, woken = OperationQueue(), Woken()
    pending.wakeup = woken
    pending.put(Waiting(1), 0.0)
    assert woken.times == 0, "it is at work"

    pending.take(1, 1)
    assert pending.is_empty()
    for number in (1, 2):
        pending.put(Waiting(number), 0.0)
    assert woken.times == 1
    assert [each.op for each in pending.take(2, 1)] == [1, 2]

    assert pending.is_empty()
    assert pending.is_empty()
    pending.put(Waiting(3), 0.0)
    assert woken.times == 2


def test_group_does_what_is_waiting_in_one_batch() -> None:
    """Answers in order, one call into the reactor for all of them."""
    driver, answers, calls = Driver(), [], []
    thread: GroupThread[int, object] = GroupThread("things", driver, calls.append, ManualClock())
    for number in (1, 2, 3):
        thread.submit(number, answers.append, 5)
    assert (thread.waiting, thread.waiting_bytes) == (3, 15)

    thread.drain()

    assert driver.batches == [[1, 2, 3]]
    assert (len(calls), answers, thread.waiting, thread.waiting_bytes, thread.commits) == (1, [], 0, 0, 1)
    calls[0]()
    assert answers == [10, 20, 30]


def test_group_bounds_a_commit_by_count_and_bytes() -> None:
    """A long queue does not become one long transaction."""
    driver, answers = Driver(), []
    thread = group(driver, bounds=Bounds(commit=2, commit_bytes=10))
    for number, size in ((1, 1), (2, 1), (3, 11), (4, 1)):
        thread.submit(number, answers.append, size)

    thread.drain()

    assert driver.batches == [[1, 2], [3], [4]]


def test_group_says_when_it_is_full() -> None:
    """By count or by bytes; what is in work counts."""
    thread = group(Driver(), bounds=Bounds(waiting=2, waiting_bytes=100))
    thread.submit(1, lambda _: None, 99)
    assert not thread.is_full
    thread.submit(2, lambda _: None)
    assert thread.is_full
    thread.drain()
    thread.submit(3, lambda _: None, 100)
    assert thread.is_full


def test_group_without_patience_answers_the_failure_at_once_and_lives() -> None:
    """Every operation of the batch fails, retryable, nothing written; the next batch works."""
    driver, answers = Driver(), []
    driver.failures = [full()]
    thread = group(driver)
    thread.submit(1, answers.append)
    thread.submit(2, answers.append)
    thread.drain()
    thread.submit(3, answers.append)
    thread.drain()

    assert [type(answer) for answer in answers[:2]] == [BackendError, BackendError]
    assert (answers[0].retryable, answers[0].is_written) == (True, False)
    assert answers[2] == 30


def test_group_with_patience_retries_the_batch_before_anything_later() -> None:
    """Order survives; the alarm is raised once and cleared by the success."""
    clock, driver, answers, alarms = ManualClock(), Driver(), [], []
    driver.failures = [full(), full()]
    thread = group(
        driver,
        clock=clock,
        retry_policy=RetryPolicy(1e-9, 30.0),
        on_alarm=lambda name, text: alarms.append((name, text)),
    )
    driver.before = lambda: thread.submit(9, answers.append) if len(driver.batches) == 1 else None
    thread.submit(1, answers.append)

    thread.drain()

    assert driver.batches == [[1], [1], [1], [9]]
    assert answers == [10, 90]
    assert alarms == [
        ("things_failing", "disk full; nothing new is acknowledged until this is over"),
        ("things_failing", ""),
    ]


def test_group_gives_up_on_what_has_waited_too_long_only() -> None:
    """Each operation by its own age; once uncertain, always uncertain."""
    clock, driver, answers = ManualClock(), Driver(), []
    driver.failures = [full(is_written=True), full(), full()]
    thread = group(driver, clock=clock, retry_policy=RetryPolicy(1e-9, 30.0))
    thread.submit(1, answers.append)
    clock.advance(20)
    thread.submit(2, answers.append)
    driver.before = lambda: clock.advance(6)

    thread.drain()

    assert driver.batches == [[1, 2], [1, 2], [2], [2]]
    assert isinstance(answers[0], BackendError)
    assert answers[0].is_written
    assert answers[1] == 20


@pytest.mark.parametrize(
    "failure",
    [BackendError("malformed", retryable=False), CorruptRecordError("damaged"), TypeError("a defect")],
    ids=repr,
)
@pytest.mark.parametrize("count", [1, 2])
def test_group_that_fails_for_good_after_an_uncertain_attempt_says_that_it_is_uncertain(
    failure: Exception, count: int
) -> None:
    """The first may have done all of the batch, whatever it is of the second that it fails; what is behind in its source waits."""
    driver, answers, source = Driver(), [], Source(may_skip=True)
    driver.failures = [full(is_written=True), *[failure for _ in range(count + (count > 1))]]
    thread = group(driver, retry_policy=RetryPolicy(1e-9, 30.0))
    for number in range(count):
        thread.submit(number, answers.append, source=source if number == 0 else Source())

    thread.drain()

    assert [type(answer) for answer in answers] == [BackendError] * count
    for answer in answers:
        assert isinstance(answer, BackendError)
        assert (answer.retryable, answer.is_written) == (False, True)
        assert str(failure) in str(answer)
    assert source.is_cut


def test_group_that_fails_for_good_in_one_operation_knows_of_it_alone() -> None:
    """What a batch has written of others does not make uncertain what its store says of each."""
    answers: list[object] = []

    def execute(ops: list[int]) -> list[object]:
        if 2 in ops:
            raise BackendError("queue 2 is damaged", retryable=False, is_written=len(ops) > 1)
        return list(ops)

    thread = group(execute)
    for number in (1, 2, 3):
        thread.submit(number, answers.append)
    thread.drain()

    assert (answers[0], answers[2]) == (1, 3)
    assert isinstance(answers[1], BackendError)
    assert not answers[1].is_written


def test_group_gives_up_behind_a_failing_batch_too() -> None:
    """What was never tried has its own limit, and was not written for certain."""
    clock, driver, answers = ManualClock(), Driver(), []
    driver.failures = [full(is_written=True), full(), full()]
    thread = group(driver, clock=clock, retry_policy=RetryPolicy(1e-9, 30.0), bounds=Bounds(commit=1))
    thread.submit(1, answers.append, 0, FOREVER_S)
    thread.submit(2, answers.append, 0, 5.0)
    thread.submit(3, answers.append)
    driver.before = lambda: clock.advance(6)

    thread.drain()

    assert driver.batches == [[1], [1], [1], [1], [3]]
    assert isinstance(answers[0], BackendError)
    assert not answers[0].is_written
    assert answers[1:] == [10, 30]


def test_group_clears_its_alarm_only_after_a_commit_that_wrote_something() -> None:
    """Giving up ends nothing; a batch with nothing to write proves nothing: the probe does."""
    driver, alarms, answers = Driver(), [], list[object]()
    driver.failures = [full()]
    still_full = [full()]

    def probe() -> None:
        if still_full:
            raise still_full[0]

    thread = group(
        driver, probe=probe, retry_policy=RetryPolicy(1e-9, 0.0), on_alarm=lambda _name, text: alarms.append(text)
    )
    thread.submit(1, answers.append)
    thread.drain()
    assert isinstance(answers[0], BackendError)
    thread.submit(2, answers.append)
    thread.drain()
    assert answers[1] == 20
    assert (len(alarms), thread.is_failing) == (1, True)

    still_full.clear()
    thread.submit(3, answers.append)
    thread.drain()

    assert (alarms[1:], thread.is_failing) == ([""], False)


def test_group_thread_finds_out_by_itself_that_its_store_works_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody publishes any more, so nobody else would notice."""
    monkeypatch.setattr(group_module, "_PROBE_S", 0.001)
    driver, alarms, probes = Driver(), queue.SimpleQueue[str](), list[int]()
    driver.failures = [full()]

    def probe() -> None:
        probes.append(1)
        if len(probes) < 3:
            raise full()

    thread = group(driver, probe=probe, on_alarm=lambda _name, text: alarms.put(text)).start()
    thread.submit(1, lambda _: None)

    assert alarms.get(timeout=5)
    assert alarms.get(timeout=5) == ""
    assert (len(probes), thread.is_failing) == (3, False)
    assert thread.close()


@pytest.mark.parametrize("failure", [BackendError("damaged", retryable=False), TypeError("a defect")])
def test_group_takes_a_hopeless_batch_apart(failure: Exception) -> None:
    """One bad operation does not fail its neighbours."""
    answers: list[object] = []
    batches: list[list[int]] = []

    def execute(ops: list[int]) -> list[object]:
        batches.append(ops)
        if 2 in ops:
            raise failure
        return list(ops)

    thread = group(execute)
    for number in (1, 2, 3):
        thread.submit(number, answers.append)
    thread.drain()

    assert answers == [1, failure, 3]
    assert batches == [[1, 2, 3], [1], [2], [3]]


def test_group_raises_an_alarm_about_what_cannot_succeed() -> None:
    """A damaged file is somebody's business, although each operation has its answer; the next commit ends it."""
    driver, alarms = Driver(), list[str]()
    driver.failures = [BackendError("things.db: database disk image is malformed", retryable=False)]
    thread = group(driver, on_alarm=lambda _name, text: alarms.append(text))
    thread.submit(1, lambda _: None)
    thread.drain()
    assert [text.split(";")[0] for text in alarms] == ["things.db: database disk image is malformed"]

    thread.submit(2, lambda _: None)
    thread.drain()

    assert alarms[1:] == [""]


def test_group_logs_a_defect_once() -> None:
    """Its operation fails like any other, and somebody hears why."""
    driver, answers = Driver(), list[object]()
    driver.failures = [ZeroDivisionError("first"), ZeroDivisionError("again")]
    thread = group(driver)
    thread.submit(1, answers.append)
    thread.submit(2, answers.append)

    with capture_logs() as lines:
        thread.drain()

    assert [(line["log_level"], line["store"]) for line in lines] == [("error", "things")]
    assert [type(answer) for answer in answers] == [ZeroDivisionError, int]


def test_group_runs_the_other_callbacks_when_one_raises() -> None:
    """Its error reaches the reactor's log; the others get their answers."""
    answers: list[object] = []
    calls: list[Callable[[], None]] = []
    thread: GroupThread[int, object] = GroupThread("things", Driver(), calls.append, ManualClock())
    thread.submit(1, lambda _: answers.append(1 / 0))
    thread.submit(2, answers.append)
    thread.drain()

    with pytest.raises(ZeroDivisionError):
        calls[0]()
    calls[1]()

    assert answers == [20]


def test_group_that_is_closed_finishes_and_takes_nothing_more() -> None:
    """Also when its thread never ran."""
    driver, answers = Driver(), []
    thread = group(driver)
    thread.submit(1, answers.append)

    assert thread.close()

    assert answers == [10]
    with pytest.raises(BackendError, match="closed"):
        thread.submit(2, answers.append)


def test_group_thread_merges_what_arrives_during_a_commit() -> None:
    """The real thread: while the first commit runs, the rest gathers for the second."""
    driver = Driver()
    answers: queue.Queue[object] = queue.Queue()
    is_running, may_go_on = threading.Event(), threading.Event()

    def wait() -> None:
        is_running.set()
        assert may_go_on.wait(10)

    driver.before = wait
    thread = group(driver).start()
    thread.submit(1, answers.put)
    assert is_running.wait(10)
    for number in range(2, 100):
        thread.submit(number, answers.put)
    may_go_on.set()

    assert [answers.get(timeout=10) for _ in range(99)] == [number * 10 for number in range(1, 100)]
    assert driver.batches == [[1], list(range(2, 100))]
    assert thread.close()


def test_group_thread_works_in_idle_time() -> None:
    """Slices follow each other until there is no more; operations come first again."""
    slices: queue.Queue[int] = queue.Queue()
    answers: queue.Queue[object] = queue.Queue()
    left = [3]

    def idle() -> bool:
        left[0] -= 1
        slices.put(left[0])
        return left[0] > 0

    thread = group(Driver(), idle=idle).start()
    assert [slices.get(timeout=10) for _ in range(3)] == [2, 1, 0]
    thread.submit(1, answers.put)
    assert answers.get(timeout=10) == 10
    assert thread.close()


def test_group_thread_that_is_closed_tries_a_failing_commit_no_more() -> None:
    """A full disk does not hold up the end of the process."""
    driver, answers = Driver(), []
    driver.failures = [full()] * 1000
    is_failing = threading.Event()
    driver.before = lambda: is_failing.set() if driver.batches else None
    thread = group(driver, retry_policy=RetryPolicy(0.001, 1e9)).start()
    thread.submit(1, answers.append)
    assert is_failing.wait(10)

    assert thread.close()

    assert isinstance(answers[0], BackendError)


def test_group_thread_tells_that_idle_work_finds_the_store_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes, and yet it is known that nobody could; the probe says when it is over."""
    monkeypatch.setattr(group_module, "_PROBE_S", 0.01)
    alarms: queue.Queue[tuple[str, str]] = queue.Queue()
    failures = [full()]

    def idle() -> bool:
        if failures:
            raise failures.pop()
        return False

    thread = group(Driver(), idle=idle, probe=lambda: None, on_alarm=lambda *alarm: alarms.put(alarm)).start()

    name, text = alarms.get(timeout=10)
    assert (name, text.startswith("disk full")) == ("things_failing", True)
    assert alarms.get(timeout=10) == ("things_failing", "")
    assert not thread.is_failing
    assert thread.close()


def test_group_thread_without_a_probe_clears_an_alarm_by_the_work_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried by clearing it: idle work that fails again and again is one alarm, until it succeeds."""
    for name in ("_QUIET_S", "_SLICE_S", "_IDLE_CHECK_S"):
        monkeypatch.setattr(group_module, name, 0.001)
    alarms, slices = queue.SimpleQueue[str](), list[int]()

    def idle() -> bool:
        slices.append(1)
        if len(slices) < 6:
            raise full()
        return False

    thread = group(Driver(), idle=idle, on_alarm=lambda _name, text: alarms.put(text)).start()

    assert alarms.get(timeout=5)
    assert alarms.get(timeout=5) == ""
    assert len(slices) >= 6
    assert not thread.is_failing
    assert thread.close()


def test_group_without_a_probe_is_not_cleared_by_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle work with nothing to do proves nothing about commits; a commit says nothing about idle work."""
    monkeypatch.setattr(group_module, "_QUIET_S", 0.001)
    alarms, had_slices = queue.SimpleQueue[str](), threading.Event()
    driver = Driver()
    driver.failures = [full()]
    slices: list[int] = []

    def idle() -> bool:
        slices.append(1)
        if len(slices) >= 3:
            had_slices.set()
        return len(slices) < 3

    monkeypatch.setattr(group_module, "_IDLE_CHECK_S", 0.001)
    thread = group(driver, idle=idle, on_alarm=lambda _name, text: alarms.put(text)).start()
    answers: queue.Queue[object] = queue.Queue()
    thread.submit(1, answers.put)
    assert isinstance(answers.get(timeout=5), BackendError)
    slices.clear()
    had_slices.clear()
    assert had_slices.wait(5)
    assert thread.is_failing
    assert alarms.get(timeout=5)
    assert alarms.empty()

    thread.submit(2, answers.put)

    assert answers.get(timeout=5) == 20
    assert alarms.get(timeout=5) == ""
    assert thread.close()


def test_group_thread_that_does_not_end_in_time_is_said() -> None:
    """Its store stays open: it is as after a crash."""
    driver, gate, is_running = Driver(), threading.Event(), threading.Event()

    def wait() -> None:
        is_running.set()
        assert gate.wait(10)

    driver.before = wait
    thread = group(driver).start()
    thread.submit(1, lambda _: None)
    assert is_running.wait(10)

    with capture_logs() as lines:
        assert not thread.close(0.01)

    assert [(line["store"], line["waiting"]) for line in lines] == [("things", 1)]
    gate.set()
    assert thread.close()


def test_group_thread_survives_a_defect_in_idle_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody hears of it; what is submitted is done."""
    monkeypatch.setattr(group_module, "_QUIET_S", 0.001)
    is_done, answers = threading.Event(), queue.Queue[object]()

    def idle() -> bool:
        is_done.set()
        raise ZeroDivisionError("a defect")

    with capture_logs() as lines:
        thread = group(Driver(), idle=idle).start()
        assert is_done.wait(10)
        thread.submit(1, answers.put)
        assert answers.get(timeout=10) == 10

    assert {(line["log_level"], line["store"]) for line in lines} == {("error", "things")}
    assert thread.close()


def given_up(thread: GroupThread[int, object], clock: ManualClock, driver: Driver, source: Source) -> list[object]:
    """One is given up after 30 s; three came 20 s later: of the same source, of none, of another one."""
    answers: list[object] = []
    thread.submit(1, answers.append, source=source)
    late = [(2, source), (3, None), (4, Source())]

    def meanwhile() -> None:
        clock.advance(20)
        while late:
            number, its_source = late.pop(0)
            thread.submit(number, answers.append, source=its_source)

    driver.before = meanwhile
    thread.drain()
    return answers


def test_group_does_nothing_of_a_source_behind_what_was_given_up() -> None:
    """It has time left, and would overtake the first one when that is sent again."""
    clock, driver, source = ManualClock(), Driver(), Source()
    driver.failures = [full(), full()]
    thread = group(driver, clock=clock, retry_policy=RetryPolicy(1e-9, 30.0))

    answers = given_up(thread, clock, driver, source)

    assert [type(answer) for answer in answers] == [BackendError, BackendError, int, int]
    assert driver.batches == [[1], [1], [3, 4]]
    assert source.is_cut


@pytest.mark.parametrize(("is_written", "batches"), [(False, [2, 3, 4]), (True, [3, 4])])
def test_group_goes_on_behind_what_was_not_written_where_that_may_be_skipped(
    is_written: bool, batches: list[int]
) -> None:
    """A source that is told of each refusal loses only what was refused; what may be written is another matter."""
    clock, driver, source = ManualClock(), Driver(), Source(may_skip=True)
    driver.failures = [full(is_written=is_written), full()]
    thread = group(driver, clock=clock, retry_policy=RetryPolicy(1e-9, 30.0))

    given_up(thread, clock, driver, source)

    assert driver.batches[-1] == batches


def test_group_keeps_a_source_in_order_when_a_batch_is_taken_apart() -> None:
    """What can never succeed stops its own source, not its neighbours; those behind it are not written for certain."""
    driver, source = Driver(), Source()
    answers: list[object] = []
    damaged = BackendError("damaged", retryable=False)
    driver.failures = [damaged, damaged]
    thread = group(driver)
    for number, its_source in ((1, source), (2, source), (3, Source())):
        thread.submit(number, answers.append, source=its_source)

    thread.drain()

    assert answers[0] is damaged
    assert isinstance(answers[1], BackendError)
    assert (answers[1].retryable, answers[1].is_written, answers[2]) == (True, False, 30)
    assert driver.batches == [[1, 2, 3], [1], [3]]
