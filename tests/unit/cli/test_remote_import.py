"""`device import` with a context: checked whole, written in parts, and a report that says what is in and how to go on.

iothub.cli.remote_import, iothub.cli.bulk.
"""

from __future__ import annotations

import csv
import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from iothub.base.errors import UnavailableError
from iothub.cli import contexts, remote_api, remote_import
from iothub.cli.contexts import Context
from iothub.cli.remote_api import Reply
from tests.support.in_process.command import Cli, Result

ROWS = 7
FILE = "name,password\n" + "".join(f"d{number},\n" for number in range(1, ROWS + 1))


def problem(status: int, code: str, detail: str, *errors: str) -> Reply:
    body = {"status": status, "code": code, "detail": detail, "errors": [{"detail": each} for each in errors]}
    return Reply(status, "", json.dumps(body).encode())


class Api:
    """An API that has devices. `before` and `after` may spoil the n-th part that is written: they raise, or return another answer."""

    def __init__(self) -> None:
        self.devices: list[str] = []
        self.keys: list[str] = []
        self.checked: list[int] = []
        self.before: dict[int, Callable[[], Reply | None]] = {}
        self.after: dict[int, Callable[[], Reply | None]] = {}
        self._answers: dict[str, Reply] = {}

    def send(self, _context: Context, _method: str, target: str, body: bytes | None, key: str) -> Reply:
        query = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        names = [row["name"] for row in csv.DictReader(io.StringIO((body or b"").decode()))]
        if query["dry_run"] == "true":
            taken = [place for place, name in enumerate(names) if name in self.devices]
            self.checked.append(len(names))
            if taken:
                lines = [f"line {int(query['first_line']) + place}: device exists already" for place in taken]
                return problem(409, "conflict", f"nothing was imported (bad lines: {len(lines)}):", *lines)
            return self._answer(names)
        self.keys.append(key)
        if spoilt := self.before.pop(len(self.keys), lambda: None)():
            return spoilt
        if key in self._answers:
            return self._answers[key]
        if set(names) & set(self.devices):
            return problem(409, "conflict", "nothing was imported (bad lines: 1):", "line 0: exists already")
        self.devices += names
        self._answers[key] = self._answer(names)
        return self.after.pop(len(self.keys), lambda: None)() or self._answers[key]

    @staticmethod
    def _answer(names: list[str]) -> Reply:
        secrets = [{"name": name, "username": f"acme/{name}", "secret": f"s-{name}"} for name in names]
        return Reply(200, "", json.dumps({"name": "acme", "devices": names, "secrets": secrets}).encode())


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Api:
    made = Api()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(remote_api, "send", made.send)
    monkeypatch.setattr(remote_import, "WRITTEN_ROWS", 3)
    monkeypatch.setattr(remote_import, "PAUSES_S", (0.0, 0.0))
    contexts.save(contexts.Contexts({"there": Context("there", "http://127.0.0.1:1", key="k")}))
    (tmp_path / "fleet.csv").write_text(FILE)
    return made


@pytest.fixture
def run(call: object, cli: Cli, tmp_path: Path) -> Callable[..., Result]:
    """Import the file; secrets go to `secrets.csv`."""

    def imported(*words: str) -> Result:
        secrets = () if "--secrets-to" in words else ("--secrets-to", str(tmp_path / "secrets.csv"))
        return cli.call("--context", "there", "device", "import", "acme", str(tmp_path / "fleet.csv"), *secrets, *words)

    return imported


def lost() -> Reply | None:
    raise UnavailableError("the API of context there does not answer")


def secrets_in(path: Path) -> list[str]:
    header, *rows = path.read_text().splitlines()
    assert header == "name,username,secret"
    return [row.partition(",")[0] for row in rows]


def names(first: int, last: int) -> list[str]:
    return [f"d{number}" for number in range(first, last + 1)]


def test_file_is_checked_whole_and_written_in_parts(api: Api, run: Callable[..., Result], tmp_path: Path) -> None:
    """Each part has a key of its own, and its secrets are behind those of the parts before."""
    done = run()

    assert (done.code, api.checked, len(set(api.keys))) == (0, [ROWS], 3)
    assert "imported 7 devices" in done.err
    assert secrets_in(tmp_path / "secrets.csv") == api.devices == names(1, 7)


def test_dry_run_writes_nothing(api: Api, run: Callable[..., Result], tmp_path: Path) -> None:
    done = run("--dry-run")

    assert (done.code, api.devices, "would import 7 devices" in done.err) == (0, [], True)
    assert not (tmp_path / "secrets.csv").exists()


def test_parts_with_passwords_are_smaller(
    api: Api, run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each password takes its time there: an answer comes every few seconds."""
    monkeypatch.setattr(remote_import, "WRITTEN_PASSWORDS", 2)
    (tmp_path / "fleet.csv").write_text(FILE.replace(",\n", ",secret\n"))

    assert run().code == 0
    assert len(api.keys) == 4


def test_lost_answer_is_asked_for_again(api: Api, run: Callable[..., Result], tmp_path: Path) -> None:
    """With the same key, so that the devices are made once and their secrets are known."""
    api.after[2] = lost

    done = run()

    assert (done.code, api.devices, api.keys[1]) == (0, names(1, 7), api.keys[2])
    assert "trying again" in done.err
    assert secrets_in(tmp_path / "secrets.csv") == names(1, 7)


@pytest.mark.parametrize(
    "answer",
    [
        problem(429, "limit_exceeded", "too many requests"),
        problem(503, "unavailable", "the database does not answer"),
        problem(409, "idempotency_in_progress", "not finished"),
    ],
)
def test_part_that_is_put_off_is_sent_again(api: Api, run: Callable[..., Result], answer: Reply) -> None:
    api.before[2] = lambda: answer

    assert run().code == 0
    assert api.devices == names(1, 7)


def test_wait_that_an_api_wants_has_an_end(api: Api, run: Callable[..., Result]) -> None:
    """A limit for a day is not waited for."""
    api.before[2] = lambda: problem(429, "limit_exceeded", "too many requests")._replace(wait_s=3600.0)

    done = run()

    assert (done.code, api.devices) == (6, names(1, 3))
    assert "too many requests" in done.err


def test_import_that_stops_says_what_is_in_and_goes_on(api: Api, run: Callable[..., Result], tmp_path: Path) -> None:
    """The secrets of what is in are kept; the rest is imported from the line that the message names."""
    api.before.update(dict.fromkeys((2, 3, 4), lost))

    stopped = run()

    assert stopped.code == 7
    assert "imported 3 of 7 devices, those before line 5; then: the API of context there does not answer" in stopped.err
    assert "lines 5 to 7 were sent and not answered" in stopped.err
    assert "`iothub --context there device show acme d4` says which" in stopped.err
    assert "go on with the option --from-line 5, or 8 if they exist" in stopped.err
    assert secrets_in(tmp_path / "secrets.csv") == names(1, 3)

    went_on = run("--from-line", "5", "--secrets-to", str(tmp_path / "more.csv"))

    assert (went_on.code, api.devices) == (0, names(1, 7))
    assert secrets_in(tmp_path / "more.csv") == names(4, 7)


def test_refused_part_is_named_by_its_line(api: Api, run: Callable[..., Result]) -> None:
    """Somebody has made a device of the file since it was checked: that part is refused, and nothing of it is unknown."""
    api.before[2] = lambda: api.devices.append("d5")

    stopped = run("-o", "json")

    assert (stopped.code, api.devices) == (4, [*names(1, 3), "d5"])
    assert "go on with the option --from-line 5, and a new file" in stopped.err
    assert "not answered" not in stopped.err


def test_nothing_is_in_when_the_first_part_is_refused(api: Api, run: Callable[..., Result], tmp_path: Path) -> None:
    api.before[1] = lambda: problem(403, "denied", "a viewer changes nothing")

    done = run()

    assert (done.code, "imported" in done.err, api.devices) == (5, False, [])
    assert not (tmp_path / "secrets.csv").exists()


def test_bad_lines_are_found_before_anything_is_written(
    api: Api, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is behind them was not looked at, and the message says so."""
    monkeypatch.setattr(remote_import, "CHECKED_ROWS", 2)
    api.devices = ["d4"]

    done = run()

    assert (done.code, api.keys, api.checked) == (4, [], [2, 2])
    assert "line 5: device exists already" in done.err
    assert "lines from 6 on were not checked yet" in done.err


def test_rows_are_read_here_first_when_there_are_many(
    api: Api, run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that stands twice is seen, however far apart; nothing is sent."""
    monkeypatch.setattr(remote_import, "CHECKED_ROWS", 2)
    (tmp_path / "fleet.csv").write_text(f"{FILE}d1,\n")

    done = run()

    assert (done.code, api.checked) == (4, [])
    assert "line 9: d1 stands in line 2 already" in done.err


def test_api_that_never_answered_is_not_waited_for(
    api: Api, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_api, "send", lambda *_given: lost())

    done = run()

    assert (done.code, "trying again" in done.err) == (7, False)


def test_first_interrupt_stops_behind_its_part(api: Api, run: Callable[..., Result], tmp_path: Path) -> None:
    api.after[2] = lambda: signal.raise_signal(signal.SIGINT)

    done = run()

    assert (done.code, api.devices) == (130, names(1, 6))
    assert "imported 6 of 7 devices, those before line 8; then: interrupted" in done.err
    assert secrets_in(tmp_path / "secrets.csv") == names(1, 6)


def test_second_interrupt_stops_at_once(api: Api, run: Callable[..., Result]) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    api.before[2] = twice

    done = run()

    assert (done.code, api.devices) == (130, names(1, 3))
    assert "lines 5 to 7 were sent and not answered" in done.err
    assert signal.getsignal(signal.SIGINT) == before


def test_interrupts_while_secrets_are_written_lose_none(
    api: Api, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those of the parts before neither."""
    fsync = os.fsync

    def interrupted(descriptor: int) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        fsync(descriptor)

    api.after[2] = lambda: monkeypatch.setattr("iothub.cli.secrets_file.os.fsync", interrupted)

    done = run()

    assert (done.code, api.devices) == (130, names(1, 6))
    assert "imported 6 of 7 devices, those before line 8; then: interrupted" in done.err
    assert secrets_in(tmp_path / "secrets.csv") == names(1, 6)


def test_secrets_that_cannot_be_written_are_named(
    api: Api, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the parts before stay; how to get new ones is said."""

    def failing() -> None:
        monkeypatch.setattr("iothub.cli.secrets_file.os.fsync", _full)

    api.after[2] = failing

    done = run()

    assert (done.code, api.devices) == (7, names(1, 6))
    assert "imported 6 of 7 devices, those before line 8" in done.err
    assert "the secrets of lines 5 to 7 are lost" in done.err
    assert "--from-line 8" in done.err


def _full(_descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_secrets_in_json_are_one_object(api: Api, run: Callable[..., Result]) -> None:
    """Also when it stops: what is printed is what is in."""
    api.before.update(dict.fromkeys((2, 3, 4), lost))

    stopped = run("--secrets-to", "-", "-o", "json")

    assert stopped.code == 7
    assert [each["name"] for each in stopped.json["secrets"]] == stopped.json["devices"] == names(1, 3)
    whole = run("--secrets-to", "-", "-o", "json", "--from-line", "5")
    assert (whole.code, whole.json["devices"]) == (0, names(4, 7))


@pytest.mark.parametrize("line", ["1", "9", "100"])
def test_line_that_the_file_has_not_is_refused(api: Api, run: Callable[..., Result], line: str) -> None:
    done = run("--from-line", line)

    assert (done.code, api.checked) == (2, [])
    assert "from 2 to 8" in done.err
