"""When the nightly jobs are due, and the files with which systemd or cron start them.

Knows no clock and writes no file. All times are UTC, which has no repeated and no missing hour.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from iothub.base.errors import ConfigError
from iothub.base.units import format_time_of_day

_DAY_S = 86400
_MINUTE_S = 60
WAIT = "2h"  # for a run that somebody started by hand: one of the timer's would have to be made up for
SPREAD_S = 300  # many hubs of one machine, or of one cluster, do not start at the same moment
USUAL_AT = 150  # minutes after midnight, where nobody has chosen
NAME = "iothub-jobs"
_USER = re.compile(
    r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}"
)  # in a crontab it stands between blanks, and nothing could quote it


@dataclass(frozen=True, slots=True)
class Installation:
    """Paths and user on the machine that runs the jobs.

    Raises ConfigError: the user name is invalid, or a path has a character that the files cannot contain.
    """

    program: Path
    data_dir: Path
    config: Path | None = None
    user: str = "iothub"
    archive: Path | None = None  # where it is not in the data directory

    def __post_init__(self) -> None:
        if _USER.fullmatch(self.user) is None:
            raise ConfigError(
                f"--user {self.user!r}: not a user name: expected at most 64 letters, digits, `_`, `.`, `@` and `-`, "
                "beginning with a letter or `_`"
            )
        for name in ("program", "data_dir", "config", "archive"):
            path = getattr(self, name)
            if path is not None and not str(path).isprintable():
                raise ConfigError(
                    f"{str(path)!a}: a unit or a crontab cannot contain this path, because of a character such as a newline; "
                    "move it to another path"
                )

    def command(self) -> list[str]:
        config = [] if self.config is None else ["--config", str(self.config)]
        return [
            str(self.program),
            "--data-dir",
            str(self.data_dir),
            *config,
            "--no-input",
            "job",
            "run",
            "--nightly",
            "--wait",
            WAIT,
        ]


def next_at(minutes: int, now_s: float) -> int:
    """Return the next time `minutes` after midnight, in Unix seconds, strictly after now."""
    today = int(now_s) // _DAY_S * _DAY_S + minutes * _MINUTE_S
    return today if today > now_s else today + _DAY_S


def systemd_timer(minutes: int) -> str:
    """Return `iothub-jobs.timer`. A run missed while the machine was off is made up for."""
    return f"""\
# /etc/systemd/system/{NAME}.timer - then: systemctl enable --now {NAME}.timer
[Unit]
Description=iothub: nightly jobs

[Timer]
OnCalendar=*-*-* {format_time_of_day(minutes)}:00 UTC
RandomizedDelaySec={SPREAD_S}
Persistent=true

[Install]
WantedBy=timers.target
"""


def systemd_service(installation: Installation) -> str:
    """Return `iothub-jobs.service`: one run of all nightly jobs, at a lower priority than the hub."""
    command = " ".join(_quoted(word).replace("$", "$$") for word in installation.command())
    writable = [installation.data_dir, *([installation.archive] if installation.archive else [])]
    return f"""\
# /etc/systemd/system/{NAME}.service - start now: systemctl start {NAME}.service; log: journalctl -u {NAME}
[Unit]
Description=iothub: nightly jobs (those of jobs.nightly)
After=network-online.target
Wants=network-online.target

[Service]
Type=oneshot
User={installation.user}
ExecStart={command}
# SIGTERM works like Ctrl-C: Spark stops and the history has the run as "interrupted".
KillMode=mixed
TimeoutStopSec=60
Nice=10
IOSchedulingClass=idle
UMask=0074
NoNewPrivileges=true
ProtectSystem=strict
ReadWritePaths={" ".join(_quoted(str(path)) for path in writable)}
ProtectHome=read-only
PrivateTmp=true
ProtectKernelTunables=true
ProtectKernelModules=true
ProtectControlGroups=true
RestrictSUIDSGID=true
LockPersonality=true
"""


def cron_line(minutes: int, installation: Installation) -> str:
    """Return a file for /etc/cron.d. Cron uses local time unless CRON_TZ sets UTC."""
    command = " ".join(shlex.quote(word) for word in installation.command()).replace("%", "\\%")
    minute, hour = minutes % 60, minutes // 60
    return f"""\
# /etc/cron.d/{NAME} - times are UTC by CRON_TZ; a cron without CRON_TZ uses local time.
# The output goes to the mail of MAILTO and to `iothub job history` and `iothub job logs`.
CRON_TZ=UTC
PATH=/usr/local/bin:/usr/bin:/bin
{minute} {hour} * * * {installation.user} {command}
"""


def _quoted(word: str) -> str:
    """Quote a word for a unit, where `%` is special too."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if any(mark in word for mark in " \t'\"\\") else text
