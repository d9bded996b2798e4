"""Settings of several workers (`iothub.config.worker_rules`, `iothub.config.workers`): what is refused, and what each worker gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.config.datadir import DataDir
from iothub.config.loader import load
from iothub.config.sections import Config
from iothub.config.workers import node_numbers, of_worker

SHARED = ("events.driver=kafka", "kafka.brokers=k:1")
LINKED = (*SHARED, "node.workers=3", "cluster.listen=127.0.0.1:7883", "cluster.insecure=true")


def settings(*flags: str) -> Config:
    return load(flags=flags).config


@pytest.mark.parametrize("number", ["1", "2", "64"])
def test_number_of_workers_is_taken(number: str) -> None:
    assert settings(f"node.workers={number}").node.workers == int(number)


def test_auto_is_a_worker_for_each_cpu_of_this_process() -> None:
    assert settings("node.workers=auto").node.workers == min(len(os.sched_getaffinity(0)), 64)


@pytest.mark.parametrize("text", ["0", "65", "-1", "two", "1.5", "true", ""])
def test_other_numbers_of_workers_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r'node\.workers: expected a whole number from 1 to 64, or "auto"'):
        settings(f"node.workers={text}")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("node.workers=2", "node.number=65535"), "2 workers need the numbers 65535 to 65536"),
        (("node.workers=2", f"node.name={'n' * 61}"), "at most 60 characters"),
        (
            ("node.workers=2", "quota.ledger=local"),
            r'quota\.ledger = "local": each of 2 workers would grant the full limit',
        ),
        (("node.workers=2", "listeners.tcp.port=0"), r"listeners\.tcp\.port = 0: the system would choose another port"),
        (("node.workers=2", "http.port=0"), r"http\.port = 0"),
        ((*LINKED, "cluster.listen=unix:/run/one.sock"), "has a socket of its own in the data directory: remove it"),
        ((*LINKED, "cluster.listen=127.0.0.1:65534"), "3 workers need the ports 65534 to 65536"),
        ((*LINKED, "cluster.advertise=hub-1:65534"), r"cluster\.advertise = .* need the ports 65534 to 65536"),
        ((*LINKED, "http.port=7885"), r"links need the ports 7883 to 7885, and http\.port is 7885"),
        ((*LINKED, "cluster.certificate_file=/a.pem"), r"cluster\.certificate_file is the file of one node"),
        ((*LINKED, "cluster.key_file=/a.pem"), r"cluster\.key_file is the file of one node"),
    ],
)
def test_settings_that_several_workers_cannot_have_are_refused(flags: tuple[str, ...], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        settings(*flags)


@pytest.mark.parametrize("flags", [("quota.ledger=local",), ("listeners.tcp.port=0",), ("node.number=65535",)])
def test_one_worker_may_have_them(flags: tuple[str, ...]) -> None:
    assert settings(*flags, "node.workers=1") == settings(*flags)


def test_worker_has_a_number_a_name_and_a_socket_of_its_own(tmp_path: Path) -> None:
    whole = settings("node.workers=3", "node.number=10", "node.name=edge")

    third = of_worker(whole, DataDir.of_worker(tmp_path, 3))

    assert (third.node.number, third.node.name, third.node.workers) == (12, "edge-w3", 3)
    assert third.cluster.listen == f"unix:{tmp_path}/run/peer-3.sock"
    assert third.listeners == whole.listeners


def test_worker_listens_for_links_at_a_port_of_its_own(tmp_path: Path) -> None:
    whole = settings(*LINKED, "cluster.advertise=hub-1.example.com:9000")

    first, third = (of_worker(whole, DataDir.of_worker(tmp_path, number)).cluster for number in (1, 3))

    assert (first.listen, first.advertise) == ("127.0.0.1:7883", "hub-1.example.com:9000")
    assert (third.listen, third.advertise) == ("127.0.0.1:7885", "hub-1.example.com:9002")


def test_path_that_is_too_long_for_an_address_is_refused(tmp_path: Path) -> None:
    long = tmp_path / ("d" * 200) / ("e" * 60)

    with pytest.raises(ConfigError, match="the path is too long for several workers"):
        of_worker(settings("node.workers=2"), DataDir.of_worker(long, 1))


def test_numbers_of_all_workers_are_known_to_each(tmp_path: Path) -> None:
    whole = settings("node.workers=3", "node.number=10")
    worker = DataDir.of_worker(tmp_path, 2)

    assert node_numbers(whole, DataDir(tmp_path)) == range(10, 13)
    assert node_numbers(of_worker(whole, worker), worker) == range(10, 13)


def test_worker_shares_what_is_common_and_has_what_is_of_a_process(tmp_path: Path) -> None:
    whole, second = DataDir(tmp_path), DataDir.of_worker(tmp_path, 2)

    for name in (
        "accounts",
        "queues",
        "events",
        "state",
        "retained",
        "pepper_file",
        "config_file",
        "installation_file",
    ):
        assert getattr(second, name) == getattr(whole, name)
    for name in (
        "lock_file",
        "hub_file",
        "member_file",
        "applied_file",
        "id_file",
        "usage",
        "usage_slots",
        "admin_socket",
    ):
        assert getattr(second, name) == tmp_path / "workers" / "2" / getattr(whole, name).name


def test_each_worker_has_the_certificate_of_its_own_node(tmp_path: Path) -> None:
    files = [DataDir.of_worker(tmp_path, number).cluster_files for number in (1, 2)]

    assert files == [DataDir(tmp_path).cluster_files, tmp_path / "cluster" / "w2"]


def test_workers_that_were_ever_there_are_found(tmp_path: Path) -> None:
    assert DataDir(tmp_path).workers() == []
    for number in (10, 2):
        DataDir.of_worker(tmp_path, number).make_own()
    (tmp_path / "workers" / "notes").mkdir()

    assert [each.worker for each in DataDir(tmp_path).workers()] == [2, 10]


def test_last_heartbeat_is_that_of_whoever_ran_last(tmp_path: Path) -> None:
    """A hub that has had one process and has several now, or the other way round, knows when it ran."""
    whole, second = DataDir(tmp_path), DataDir.of_worker(tmp_path, 2)
    second.make_own()
    assert whole.last_heartbeat() is None
    whole.write_heartbeat()
    os.utime(whole.heartbeat_file, (100, 100))
    second.write_heartbeat()
    os.utime(second.heartbeat_file, (200, 200))

    assert whole.last_heartbeat() == second.last_heartbeat() == 200
