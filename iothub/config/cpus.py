"""How many CPUs this process may use: by its affinity, and by the quota of its control groups, which containers and systemd set.

Knows no setting. A quota is whole CPUs, rounded down: one more worker than that would be throttled with all others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")
_MOUNTS = "sys/fs/cgroup"


def usable_cpus(root: Path = _ROOT) -> int:
    """`root`: of the file system. At least 1."""
    cpus = len(os.sched_getaffinity(0))
    quotas = [quota for quota in _quotas(root) if quota > 0]
    return max(1, min([cpus, *map(int, quotas)]))


def _quotas(root: Path) -> Iterator[float]:
    """Yield the quota of each control group around this process, in CPUs."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mounts = root / _MOUNTS
    for line in lines:
        _, names, path = line.split(":", 2)
        if not names:
            yield from map(_of_version_2, _levels(mounts, path))
        elif "cpu" in names.split(","):
            for mount in {mounts / names, mounts / "cpu"}:
                yield from map(_of_version_1, _levels(mount, path))


def _levels(mount: Path, path: str) -> Iterator[Path]:
    """Yield a group's directory and those above it; in a container they may not be there, and the mount itself is the group's."""
    group = mount / path.lstrip("/")
    yield group
    yield from (above for above in group.parents if above.is_relative_to(mount))


def _of_version_2(group: Path) -> float:
    quota, _, period = _read(group / "cpu.max").partition(" ")
    return _divided(quota, period)


def _of_version_1(group: Path) -> float:
    return _divided(_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us"))


def _divided(quota: str, period: str) -> float:
    """Return 0 for a group without a quota (`max`, -1, no file)."""
    if not quota.isdecimal() or not period.isdecimal() or not int(period):
        return 0.0
    return max(int(quota) / int(period), 1.0)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
