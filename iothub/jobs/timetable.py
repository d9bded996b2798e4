"""When the jobs of the night are due, and the files by which systemd or cron start them.

Knows no clock and no file: the time comes in, texts go out. All times are UTC, which has no hour twice and none that is missing.
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
    """Where things are on the machine that the files are for.

    Raises ConfigError: the name is no user's, or a path has what no line of a file can hold.
    """

    program: Path
    data_dir: Path
    config: Path | None = None
    user: str = "iothub"
    archive: Path | None = None  # where it is not in the data directory

    def __post_init__(self) -> None:
        if _USER.fullmatch(self.user) is None:
            raise ConfigError(
                f"--user {self.user!r}: is no user's name; expected at most 64 of letters, digits, `_`, `.`, `@` and `-`, "
                "with a letter or `_` first"
            )
        for name in ("program", "data_dir", "config", "archive"):
            path = getattr(self, name)
            if path is not None and not str(path).isprintable():
                raise ConfigError(
                    f"{str(path)!a}: has characters that cannot be written into a unit or a crontab, such as a line's end; "
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
    """Return when it is next so many minutes after midnight, in Unix seconds; now counts as gone."""
    today = int(now_s) // _DAY_S * _DAY_S + minutes * _MINUTE_S
    return today if today > now_s else today + _DAY_S


def systemd_timer(minutes: int) -> str:
    """Return `iothub-jobs.timer`. A night that the machine has slept through is made up for."""
    return f"""\
# /etc/systemd/system/{NAME}.timer - then: systemctl enable --now {NAME}.timer
[Unit]
Description=iothub: the jobs of the night

[Timer]
OnCalendar=*-*-* {format_time_of_day(minutes)}:00 UTC
RandomizedDelaySec={SPREAD_S}
Persistent=true

[Install]
WantedBy=timers.target
"""


def systemd_service(installation: Installation) -> str:
    """Return `iothub-jobs.service`: one run of all jobs of the night, behind the hub in everything that it takes."""
    command = " ".join(_quoted(word).replace("$", "$$") for word in installation.command())
    writable = [installation.data_dir, *([installation.archive] if installation.archive else [])]
    return f"""\
# /etc/systemd/system/{NAME}.service - by hand: systemctl start {NAME}.service; what it says: journalctl -u {NAME}
[Unit]
Description=iothub: the jobs of the night (those of jobs.nightly)
After=network-online.target
Wants=network-online.target

[Service]
Type=oneshot
User={installation.user}
ExecStart={command}
# SIGTERM is Ctrl-C: Spark is stopped and the history says "interrupted".
KillMode=mixed
TimeoutStopSec=60
Nice=10
IOSchedulingClass=idle
UMask=0077
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
    """Return a file for /etc/cron.d. Cron has the machine's time, so it is told to have UTC."""
    command = " ".join(shlex.quote(word) for word in installation.command()).replace("%", "\\%")
    minute, hour = minutes % 60, minutes // 60
    return f"""\
# /etc/cron.d/{NAME} - times are UTC by CRON_TZ; a cron that does not know it takes the machine's time.
# What the jobs say goes to the mail of MAILTO, and is in `iothub job history` and `iothub job logs`.
CRON_TZ=UTC
PATH=/usr/local/bin:/usr/bin:/bin
{minute} {hour} * * * {installation.user} {command}
"""


def _quoted(word: str) -> str:
    """Quote a word for a unit, where `%` means something, too."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if any(mark in word for mark in " \t'\"\\") else text
