"""`iothub.hub.workers.supervisor` over children that serve nobody: who is started, started again, stopped, and what a failing start says."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iothub.config.datadir import DataDir
from iothub.config.sections import Node
from iothub_tenants.accounts import hubs
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore, create_schema
from tests.support.waiting import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[3]
WORKERS = 3


class Supervised:
    """A supervisor's process, and what its children have noted."""

    def __init__(self, place: Path, **environment: str) -> None:
        self.place = place
        with (place / "log").open("wb") as log:
            words = [sys.executable, "-m", "tests.support.hubs.supervising", str(place), str(WORKERS)]
            self.process = subprocess.Popen(words, stderr=log, stdout=log, cwd=ROOT, env={**os.environ, **environment})

    @property
    def log(self) -> str:
        return (self.place / "log").read_text()

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]

    def events(self, what: str) -> list[tuple[str, int]]:
        """Return who has noted that, in order, with its process id."""
        file = self.place / "events"
        words = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(name, int(pid)) for name, noted, pid in words if noted == what]

    def pid(self, name: str, what: str = "ready") -> int:
        return [pid for who, pid in self.events(what) if who == name][-1]

    def is_announced(self) -> bool:
        return (self.place / "announced").exists()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    started: list[Supervised] = []

    def start(**environment: str) -> Supervised:
        started.append(Supervised(tmp_path, **environment))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture
def ready(supervise: Callable[..., Supervised]) -> Supervised:
    made = supervise()
    until(made.is_announced, "a process of the supervisor")
    return made


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_store_process_is_ready_before_a_worker_begins(ready: Supervised) -> None:
    began = [name for name, _ in ready.events("ready")]

    assert began[0] == "store"
    assert sorted(began[1:]) == ["w1", "w2", "w3"]


def killed(place: Path, number: int) -> None:
    """A worker of an earlier run had joined, and was killed."""
    with closing(AccountStore(sqlite_url(place / "accounts.db"))) as store:
        row = hubs.begin(store, Node().number + number - 1, f"hub-w{number}", None)
    worker = DataDir.of_worker(place, number)
    worker.make_own()
    assert row is not None
    worker.write_member(row.incarnation)


@pytest.mark.parametrize("number", [WORKERS, WORKERS + 1])
def test_start_waits_until_it_is_noted_that_a_worker_has_left_that_nobody_replaces(
    tmp_path: Path, supervise: Callable[..., Supervised], number: int
) -> None:
    """Its row looks like another hub's; that of one who is replaced does not, and accounts that do not answer hold up nobody."""
    create_schema(sqlite_url(tmp_path / "accounts.db"))
    killed(tmp_path, number)
    with closing(sqlite3.connect(tmp_path / "accounts.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        made = supervise()
        if number > WORKERS:
            time.sleep(2.0)
            assert made.events("ready") == []
        else:
            until(made.is_announced, "a process of the supervisor")
        other.execute("ROLLBACK")

    until(lambda: "how long the start took" in made.log, "the line that follows the announcement")
    [took] = [line for line in made.lines if line["event"] == "how long the start took"]
    assert ("accounts_s" in took) == (number > WORKERS)


def test_sigterm_stops_the_workers_and_then_the_store_process(ready: Supervised) -> None:
    ready.process.send_signal(signal.SIGTERM)

    assert ready.process.wait(PATIENCE_S) == 0
    stopped = [name for name, _ in ready.events("stopped")]
    assert stopped[-1] == "store"
    assert sorted(stopped[:-1]) == ["w1", "w2", "w3"]


def test_start_that_fails_says_so_once_and_leaves_nobody(tmp_path: Path, supervise: Callable[..., Supervised]) -> None:
    """It has the exit code of the error, and nothing is tried again."""
    for name in ("w2", "w3"):
        (tmp_path / f"refuse-{name}").write_text("the certificate is another node's")

    failed = supervise()

    assert failed.process.wait(PATIENCE_S) == 2
    assert failed.log.count("the certificate is another node's") == 1
    assert "and a detail" in failed.log
    assert not any(is_alive(pid) for _, pid in failed.events("ready"))


def test_store_process_that_does_not_start_starts_no_worker(
    tmp_path: Path, supervise: Callable[..., Supervised]
) -> None:
    (tmp_path / "refuse-store").write_text("a newer program wrote queues.db")

    failed = supervise()

    assert failed.process.wait(PATIENCE_S) == 2
    assert "a newer program wrote queues.db" in failed.log
    assert failed.events("ready") == []


@pytest.mark.parametrize("name", ["w2", "store"])
def test_child_that_is_killed_during_the_start_is_started_again(
    tmp_path: Path, supervise: Callable[..., Supervised], name: str
) -> None:
    """The start goes on: a kill says nothing about the next process."""
    (tmp_path / f"kill-{name}").write_text("2")

    made = supervise()

    until(made.is_announced, "a process of the supervisor")
    ended = [line for line in made.lines if "has ended" in str(line["event"])]
    assert ["signal SIGKILL" in str(line["cause"]) for line in ended] == [True, True]


def say(ready: Supervised, name: str, what: str) -> None:
    said = len(ready.events("drain-said"))
    new = ready.place / "drain"
    new.write_text(what)
    new.rename(ready.place / f"drain-{name}")
    until(lambda: len(ready.events("drain-said")) > said, "a drain")


def test_worker_that_drains_is_started_again_draining_until_it_lets_clients_in(ready: Supervised) -> None:
    """However it ends, and however often; the others never drain."""
    say(ready, "w2", "begin")
    (ready.place / "finish-w2").touch()
    until(lambda: len(ready.events("ready-draining")) == 1, "the next process")
    os.kill(ready.pid("w2", "ready-draining"), signal.SIGKILL)
    until(lambda: len(ready.events("ready-draining")) == 2, "the one after it")
    os.kill(ready.pid("w1"), signal.SIGKILL)
    until(lambda: len(ready.events("ready")) == WORKERS + 2, "the other worker")

    say(ready, "w2", "end")
    os.kill(ready.pid("w2", "ready-draining"), signal.SIGKILL)
    until(lambda: len(ready.events("ready")) == WORKERS + 3, "a process that lets clients in")

    assert {name for name, _ in ready.events("ready-draining")} == {"w2"}
    assert ready.events("ready")[-1][0] == "w2"


def test_worker_that_is_killed_while_another_one_starts_is_started_again(
    tmp_path: Path, supervise: Callable[..., Supervised]
) -> None:
    (tmp_path / "wait-w3").touch()
    made = supervise()
    until(lambda: {name for name, _ in made.events("ready")} == {"store", "w1", "w2"}, "two workers")
    before = made.pid("w2")

    os.kill(before, signal.SIGKILL)
    until(lambda: made.pid("w2") != before, "a process of the supervisor")
    (tmp_path / "wait-w3").unlink()

    until(made.is_announced, "a process of the supervisor")


@pytest.mark.parametrize("name", ["w3", "store"])
def test_child_that_is_frozen_before_it_is_ready_is_killed_and_started_again(
    tmp_path: Path, supervise: Callable[..., Supervised], name: str
) -> None:
    (tmp_path / f"wait-{name}").touch()
    made = supervise(LOOK_S="0.5")
    until(lambda: name in {who for who, _ in made.events("waits")}, "a process that starts")
    before = made.pid(name, "waits")
    time.sleep(2.0)  # it has given signs of life

    os.kill(before, signal.SIGSTOP)
    until(lambda: made.pid(name, "waits") != before, "a process of the supervisor")
    (tmp_path / f"wait-{name}").unlink()

    until(made.is_announced, "a process of the supervisor")
    ended = [line for line in made.lines if "has ended" in str(line["event"])]
    assert ended  # on a busy machine another one may have been silent for so long, too
    assert all(line["cause"] == f"the process {line['name']} did not answer for 5 s and was killed" for line in ended)


def test_worker_that_starts_for_long_is_not_killed(tmp_path: Path, supervise: Callable[..., Supervised]) -> None:
    (tmp_path / "wait-w3").touch()
    made = supervise(LOOK_S="0.5")
    until(lambda: {"w1", "w2"} <= {who for who, _ in made.events("ready")}, "two workers")

    time.sleep(6.0)  # who says nothing is killed after five seconds
    (tmp_path / "wait-w3").unlink()

    until(made.is_announced, "a process of the supervisor")
    assert [line for line in made.lines if "has ended" in str(line["event"])] == []


def test_worker_that_begins_again_while_another_one_starts_is_started_again(
    tmp_path: Path, supervise: Callable[..., Supervised]
) -> None:
    """Clients of the others stay."""
    (tmp_path / "wait-w3").touch()
    made = supervise()
    until(lambda: {"w1", "w2"} <= {who for who, _ in made.events("ready")}, "two workers")
    before = {name: made.pid(name) for name in ("w1", "w2")}

    (tmp_path / "finish-w2").touch()
    until(lambda: made.pid("w2") != before["w2"], "a process of the supervisor")
    (tmp_path / "wait-w3").unlink()

    until(made.is_announced, "a process of the supervisor")
    assert made.pid("w1") == before["w1"]


def test_start_fails_if_a_child_is_killed_each_time(tmp_path: Path, supervise: Callable[..., Supervised]) -> None:
    (tmp_path / "kill-w2").write_text("100")

    failed = supervise()

    assert failed.process.wait(PATIENCE_S) == 1
    assert failed.log.splitlines()[-1] == "the process hub-1-w2 ended: signal SIGKILL; its lines in the log say more"
    assert not any(is_alive(pid) for _, pid in failed.events("ready"))


@pytest.mark.parametrize("name", ["w2", "store"])
def test_child_that_is_killed_is_started_again(ready: Supervised, name: str) -> None:
    before = {each: ready.pid(each) for each in ("store", "w1", "w2", "w3")}

    os.kill(before[name], signal.SIGKILL)
    until(lambda: ready.pid(name) != before[name], "a process of the supervisor")

    assert [each for each in before if ready.pid(each) != before[each]] == [name]
    (line,) = [line for line in ready.lines if "has ended" in str(line["event"])]
    assert "signal SIGKILL" in str(line["cause"])


@pytest.mark.parametrize("name", ["w2", "store"])
def test_child_that_is_frozen_is_killed_and_started_again(supervise: Callable[..., Supervised], name: str) -> None:
    """What is said of it is true: it did not answer. The workers are told of the store process when it is late, and when it is back."""
    ready = supervise(LOOK_S="0.5")
    until(ready.is_announced, "a process of the supervisor")
    before = {each: ready.pid(each) for each in ("store", "w1", "w2", "w3")}

    os.kill(before[name], signal.SIGSTOP)
    until(lambda: ready.pid(name) != before[name], "a process of the supervisor")

    assert [each for each in before if ready.pid(each) != before[each]] == [name]
    (late,) = [line for line in ready.lines if line["event"] == "a process of this hub does not answer"]
    (line,) = [line for line in ready.lines if "has ended" in str(line["event"])]
    assert late["name"] == line["name"] == (name if name == "store" else f"hub-1-{name}")
    assert line["cause"] == f"the process {line['name']} did not answer for 5 s and was killed"
    told = ["w1", "w2", "w3"] if name == "store" else []
    until(lambda: sorted(who for who, _ in ready.events("store-back")) == told, "what the workers are told")
    assert {who for who, _ in ready.events("store-away")} == set(told)


def test_child_that_goes_on_in_time_stays(ready: Supervised) -> None:
    frozen = ready.pid("store")
    os.kill(frozen, signal.SIGSTOP)
    until(lambda: len(ready.events("store-away")) == 3, "what the workers are told")

    os.kill(frozen, signal.SIGCONT)

    until(lambda: len(ready.events("store-back")) == 3, "what the workers are told")
    assert ready.pid("store") == frozen
    assert [line["name"] for line in ready.lines if "answers again" in str(line["event"])] == ["store"]


def test_worker_that_the_others_go_on_without_is_started_again(ready: Supervised, tmp_path: Path) -> None:
    before = ready.pid("w2")

    (tmp_path / "finish-w2").touch()

    until(lambda: ready.pid("w2") != before, "a process of the supervisor")
    (line,) = [line for line in ready.lines if "has ended" in str(line["event"])]
    assert "the other hubs went on without hub-1-w2" in str(line["cause"])


def test_child_that_keeps_ending_is_started_later_each_time(ready: Supervised, tmp_path: Path) -> None:
    (tmp_path / "refuse-w1").write_text("the disk is full")
    os.kill(ready.pid("w1"), signal.SIGKILL)

    def keeps_ending() -> list[dict[str, object]]:
        return [line for line in ready.lines if "keeps ending" in str(line["event"])]

    until(lambda: bool(keeps_ending()), "a process of the supervisor")

    assert keeps_ending()[0]["cause"] == "the disk is full"
    pauses = [line["restart_in_s"] for line in ready.lines if "restart_in_s" in line]
    assert pauses == sorted(set(pauses))
    (tmp_path / "refuse-w1").unlink()
    until(lambda: len([name for name, _ in ready.events("ready") if name == "w1"]) == 2, "a process of the supervisor")


def test_sighup_reaches_each_worker(ready: Supervised) -> None:
    ready.process.send_signal(signal.SIGHUP)

    until(
        lambda: sorted(name for name, _ in ready.events("reloaded")) == ["w1", "w2", "w3"],
        "a process of the supervisor",
    )


def test_service_manager_hears_of_the_whole(tmp_path: Path, supervise: Callable[..., Supervised]) -> None:
    """Ready when all workers are, alive all the time, and the stop; from the supervisor alone."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(PATIENCE_S)
        listening.bind(str(tmp_path / "notify"))
        running = supervise(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="300000")
        said: list[str] = []
        while "READY=1" not in said:
            said.append(listening.recv(4096).decode().partition("\n")[0])
        assert len(running.events("ready")) == WORKERS + 1
        while said[-1] != "WATCHDOG=1":
            said.append(listening.recv(4096).decode())
        running.process.send_signal(signal.SIGTERM)
        while said[-1] != "STOPPING=1":
            said.append(listening.recv(4096).decode().partition("\n")[0])

    assert running.process.wait(PATIENCE_S) == 0
    assert set(said) == {"WATCHDOG=1", "READY=1", "STOPPING=1"}


def test_stop_during_a_start_is_a_clean_one(tmp_path: Path, supervise: Callable[..., Supervised]) -> None:
    """Who serves has clients; who still starts has a row that other hubs see, and would miss."""
    (tmp_path / "wait-w3").touch()
    starting = supervise()
    until(lambda: {name for name, _ in starting.events("ready")} == {"store", "w1", "w2"}, "two workers")
    until(lambda: "w3" in {name for name, _ in starting.events("waits")}, "a process that starts")

    starting.process.send_signal(signal.SIGTERM)

    assert starting.process.wait(PATIENCE_S) == 0
    assert sorted(name for name, _ in starting.events("stopped")) == ["store", "w1", "w2", "w3"]


def test_second_signal_ends_everything_at_once(tmp_path: Path, supervise: Callable[..., Supervised]) -> None:
    (tmp_path / "ignore-w1").touch()
    hanging = supervise()
    until(hanging.is_announced, "a process of the supervisor")
    hanging.process.send_signal(signal.SIGTERM)
    until(lambda: {name for name, _ in hanging.events("stopped")} >= {"w2", "w3"}, "a process of the supervisor")

    hanging.process.send_signal(signal.SIGTERM)

    assert hanging.process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    until(lambda: not any(is_alive(pid) for _, pid in hanging.events("ready")), "a process of the supervisor")


def test_worker_that_does_not_stop_in_time_is_killed(tmp_path: Path, supervise: Callable[..., Supervised]) -> None:
    """The store process is stopped after it all the same; the exit code and the log say that something was cut off, and why."""
    (tmp_path / "ignore-w1").touch()
    hanging = supervise(STOP_S="1")
    until(hanging.is_announced, "a process of the supervisor")

    hanging.process.send_signal(signal.SIGTERM)

    assert hanging.process.wait(PATIENCE_S) == 1
    assert [name for name, _ in hanging.events("stopped")][-1] == "store"
    kills = [line for line in hanging.lines if line["event"] == "a process of this hub does not stop, killing it"]
    assert [(line["name"], line["seconds"]) for line in kills] == [("hub-1-w1", 6.0)]
    (end,) = [line for line in hanging.lines if line["event"] == "a process of this hub did not stop cleanly"]
    assert str(end["cause"]).startswith("the process hub-1-w1 did not stop within 6 s and was killed")


def test_no_child_outlives_a_supervisor_that_is_killed(ready: Supervised) -> None:
    """Not one that hangs, either: a new start is possible at once."""
    children = [pid for _, pid in ready.events("ready")]
    os.kill(children[1], signal.SIGSTOP)

    ready.process.kill()
    ready.process.wait(PATIENCE_S)

    until(lambda: not any(map(is_alive, children)), "a process of the supervisor")
