"""`ops/systemd`: units that systemd takes, and that fit the hub's own limits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iothub.cli.main import run
from iothub.config.sections import Config
from iothub.jobs.timetable import Installation, systemd_service
from tests.support.systemd import verify

UNITS = Path(__file__).parents[3] / "ops/systemd"
USUAL = Installation(Path("/opt/iothub/bin/iothub"), Path("/var/lib/iothub"))


def settings(name: str) -> dict[str, str]:
    """Return the settings of a unit; none stands there twice."""
    found = re.findall(r"^(\w+)=(.*)$", (UNITS / name).read_text(), re.MULTILINE)
    assert len({key for key, _ in found}) == len(found)
    return dict(found)


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    """With a program and a user that are there."""
    program = tmp_path / "iothub"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/iothub/bin/iothub", str(program)).replace("=iothub\n", "=root\n", 1))

    assert verify(copy) == []


def test_systemd_finds_a_wrong_setting(tmp_path: Path) -> None:
    """What the tests above stand on."""
    wrong = tmp_path / "iothub.service"
    wrong.write_text((UNITS / "iothub.service").read_text().replace("WatchdogSec=", "WatchdogSeconds="))

    assert any("WatchdogSeconds" in line for line in verify(wrong))


@pytest.mark.parametrize("unit", sorted(UNITS.glob("*.service")), ids=lambda unit: unit.name)
def test_command_of_a_unit_is_understood(
    unit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the command complains of is the directory that is not there."""
    monkeypatch.delenv("IOTHUB_DATA_DIR", raising=False)
    program, *words = settings(unit.name)["ExecStart"].replace("/var/lib/iothub", str(tmp_path / "none")).split()

    assert program == "/opt/iothub/bin/iothub"
    assert run(words) == 3
    assert "not initialised yet" in capsys.readouterr().err


def test_systemd_waits_longer_than_a_hub_stops() -> None:
    assert int(settings("iothub.service")["TimeoutStopSec"]) > Config().node.stop_timeout_s


def test_hub_that_can_start_later_is_tried_again() -> None:
    """Not after a mistake that the next start makes again: codes 2, 3 and 4 of `iothub serve --help`."""
    unit = settings("iothub.service")

    assert (unit["Restart"], unit["RestartPreventExitStatus"].split()) == ("on-failure", ["2", "3", "4"])
    assert unit["StartLimitIntervalSec"] == "0"


def test_every_unit_is_of_the_same_user_program_and_directory() -> None:
    """The hub's, the API's, and those of the night, which `iothub job schedule` prints."""
    night = dict(re.findall(r"^(\w+)=(.*)$", systemd_service(USUAL), re.MULTILINE))
    both = [settings("iothub.service"), settings("iothub-admin.service")]

    assert [unit["User"] for unit in both] == [night["User"]] * 2
    assert night["ReadWritePaths"] == "/var/lib/iothub"
    assert [unit["StateDirectory"] for unit in both] == ["iothub"] * 2
    assert {unit["ExecStart"].split(" --no-input ")[0] for unit in [*both, night]} == {
        "/opt/iothub/bin/iothub --data-dir /var/lib/iothub"
    }
