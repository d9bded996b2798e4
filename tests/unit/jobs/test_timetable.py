"""`iothub.jobs.timetable`: when the night's jobs are due, and files that systemd and cron take as they are."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.jobs.timetable import USUAL_AT, Installation, cron_line, next_at, systemd_service, systemd_timer
from tests.support.systemd import verify

ROOT = Path(__file__).parents[3]
USUAL = Installation(Path("/opt/iothub/bin/iothub"), Path("/var/lib/iothub"))
ODD = Installation(
    Path("/opt/my hub/iothub"), Path('/srv/100% "mine";/\\$HOME'), Path("/etc/hub's.toml"), "hub", Path("/archive")
)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-11-22T02:29:59", "2026-11-22T02:30"),
        ("2026-11-22T02:30:00", "2026-11-23T02:30"),
        ("2026-12-31T23:00:00", "2027-01-01T02:30"),
    ],
)
def test_next_time_is_later_than_now(now: str, expected: str) -> None:
    at = next_at(150, datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp())

    assert datetime.fromtimestamp(at, UTC).isoformat(timespec="minutes") == f"{expected}+00:00"


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("iothub-jobs.service", systemd_service(USUAL)),
        ("iothub-jobs.timer", systemd_timer(USUAL_AT)),
        ("iothub-jobs.cron", cron_line(USUAL_AT, USUAL)),
    ],
)
def test_files_in_the_tree_are_what_is_printed(name: str, made: str) -> None:
    """For the usual places; `iothub job schedule` prints them for others."""
    assert (ROOT / "ops/schedules" / name).read_text() == made


@pytest.mark.parametrize("installation", [USUAL, ODD], ids=["usual", "odd"])
def test_systemd_takes_the_units(installation: Installation, tmp_path: Path) -> None:
    """It is asked itself."""
    program = tmp_path / installation.program.relative_to("/")
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    there = replace(installation, program=program, user="root")
    service, timer = tmp_path / "iothub-jobs.service", tmp_path / "iothub-jobs.timer"
    service.write_text(systemd_service(there))
    timer.write_text(systemd_timer(USUAL_AT))
    for file, sections in ((service, ["Unit", "Service"]), (timer, ["Unit", "Timer", "Install"])):
        assert re.findall(r"^\[(\w+)\]$", file.read_text(), re.MULTILINE) == sections

    assert verify(service, timer) == []


@pytest.mark.parametrize(
    "user", ["x;y", "", "a b", "a\nb", "-x", "7up", "root\n* * * * * root", "$(id)", "ü", "a" * 65]
)
def test_what_is_no_user_is_refused_by_name(user: str) -> None:
    with pytest.raises(ConfigError, match=r"--user .*: not a user name"):
        replace(USUAL, user=user)


@pytest.mark.parametrize("user", ["iothub", "_iothub", "hub-2", "iot.hub", "hub@example.com"])
def test_usual_users_are_taken(user: str) -> None:
    assert f"User={user}\n" in systemd_service(replace(USUAL, user=user))


@pytest.mark.parametrize("part", ["program", "data_dir", "config", "archive"])
def test_path_that_no_line_can_hold_is_refused(part: str) -> None:
    """What is behind the end of a line would be a line of its own."""
    with pytest.raises(ConfigError, match=r"/hub\\nUser=root': a unit or a crontab cannot contain this path"):
        replace(USUAL, **{part: Path("/hub\nUser=root")})


def test_command_of_a_unit_means_what_it_says() -> None:
    """`%` and `$` mean something in a unit, a blank ends a word."""
    line = next(line for line in systemd_service(ODD).splitlines() if line.startswith("ExecStart="))

    assert '"/opt/my hub/iothub" --data-dir "/srv/100%% \\"mine\\";/\\\\$$HOME" --config "/etc/hub\'s.toml"' in line
    assert line.endswith("--no-input job run --nightly --wait 2h")
    assert 'ReadWritePaths="/srv/100%% \\"mine\\";/\\\\$HOME" /archive\n' in systemd_service(ODD)


@pytest.mark.parametrize("installation", [USUAL, ODD], ids=["usual", "odd"])
def test_cron_line_has_its_fields(installation: Installation) -> None:
    """Minute, hour, user, and a command that a shell takes apart again as it was put together."""
    lines = [line for line in cron_line(155, installation).splitlines() if line[:1].isdigit()]
    assert len(lines) == 1
    found = re.fullmatch(r"(\d+) (\d+) \* \* \* (\w+) (.+)", lines[0])
    assert found is not None

    minute, hour, user, command = found.groups()
    assert (minute, hour, user) == ("35", "2", installation.user)
    assert not re.search(r"(?<!\\)%", command)
    words = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {command.replace(chr(92) + '%', '%')}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert words.stdout.splitlines() == installation.command()
