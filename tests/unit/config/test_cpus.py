"""`auto` workers: CPUs by affinity and by the quota of control groups of either version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iothub.config.cpus import usable_cpus


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))


def put(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def in_groups(root: Path, groups: str, **files: str) -> Path:
    """`files`: under /sys/fs/cgroup."""
    put(root, proc__self__cgroup=groups)
    put(root / "sys/fs/cgroup", **files)
    return root


def test_affinity_counts_without_a_quota(tmp_path: Path) -> None:
    (tmp_path / "2").mkdir()

    assert usable_cpus(tmp_path) == 8
    assert usable_cpus(in_groups(tmp_path / "2", "0::/\n", **{"cpu.max": "max 100000\n"})) == 8


@pytest.mark.parametrize(("quota", "cpus"), [("200000 100000", 2), ("350000 100000", 3), ("50000 100000", 1)])
def test_quota_of_version_2_is_rounded_down_and_is_one_at_least(tmp_path: Path, quota: str, cpus: int) -> None:
    assert usable_cpus(in_groups(tmp_path, "0::/\n", **{"cpu.max": quota + "\n"})) == cpus


def test_quota_of_a_group_above_holds_too(tmp_path: Path) -> None:
    files = {"system.slice__cpu.max": "300000 100000\n", "system.slice__iothub.service__cpu.max": "max 100000\n"}

    assert usable_cpus(in_groups(tmp_path, "0::/system.slice/iothub.service\n", **files)) == 3


def test_group_that_a_container_does_not_see_is_its_mount(tmp_path: Path) -> None:
    groups = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n"
    files = {"cpu,cpuacct__cpu.cfs_quota_us": "400000\n", "cpu,cpuacct__cpu.cfs_period_us": "100000\n"}

    assert usable_cpus(in_groups(tmp_path, groups, **files)) == 4


def test_version_1_without_a_quota_is_none(tmp_path: Path) -> None:
    files = {"cpu__cpu.cfs_quota_us": "-1\n", "cpu__cpu.cfs_period_us": "100000\n"}

    assert usable_cpus(in_groups(tmp_path, "2:cpu:/\n", **files)) == 8
