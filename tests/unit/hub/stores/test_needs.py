"""What a hub needs of the machine before it opens anything."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.config.datadir import DataDir
from iothub.config.loader import load
from iothub.config.sections import Cluster, Config
from iothub.hub.stores.needs import own_descriptors, require_descriptors, room_bytes
from iothub.net.descriptors import Descriptors, least_limit
from iothub_services.queues.journal.sizes import SMALLEST
from iothub_services.quota.slots import SIZE_BYTES


def settings(*flags: str) -> Config:
    return load(flags=["listeners.tcp.port=0", *flags]).config


def least(chosen: Config) -> int:
    return least_limit(own_descriptors(chosen) + 1)


def test_limit_below_the_needs_is_refused_with_what_is_needed() -> None:
    """For the hub itself, and for all connections that the settings allow."""
    chosen = settings("listeners.tcp.max_connections=1000")
    wanted, enough = least(chosen), least_limit(own_descriptors(chosen) + 1000)

    with pytest.raises(ConfigError) as caught:
        require_descriptors(chosen, wanted - 1, lambda: 3)

    assert str(caught.value) == (
        f"the limit of {wanted - 1} file descriptors is too low: with these settings the hub needs at least {wanted}, "
        f"and {enough} for 1000 connections; raise it (LimitNOFILE in systemd, `ulimit -n`)"
    )
    require_descriptors(chosen, wanted, lambda: 3)


def test_least_limit_leaves_a_client_a_descriptor() -> None:
    """What is accepted here, the hub does not refuse later."""
    chosen = settings()

    assert Descriptors(least(chosen), own=own_descriptors(chosen)).servable == 1


def test_inherited_descriptors_are_needed_as_well() -> None:
    chosen = settings()

    with pytest.raises(ConfigError, match=f"the hub needs at least {least(chosen) + 7}, "):
        require_descriptors(chosen, least(chosen) + 6, lambda: 10)


def test_limit_that_is_reached_already_is_refused() -> None:
    def count() -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with pytest.raises(ConfigError, match="the limit of 500 file descriptors is too low"):
        require_descriptors(settings(), 500, count)


@pytest.mark.parametrize(
    "flags",
    [
        ["listeners.ws.port=0"],
        ["listeners.tcp.inner.port=0"],
        ["http.port=0"],
        ["kafka.brokers=kafka-1:9092"],
        ["redis.addresses=127.0.0.1:6379"],
        ["hbase.thrift=127.0.0.1:9090"],
        ["queues.journal=true"],
    ],
)
def test_whatever_is_on_needs_more(flags: list[str]) -> None:
    off = "queues.journal=false"
    assert own_descriptors(settings(off, *flags)) > own_descriptors(settings(off))


def test_links_need_more() -> None:
    alone = settings()

    assert own_descriptors(replace(alone, cluster=Cluster(listen="127.0.0.1:4000"))) > own_descriptors(alone)


def test_files_that_a_start_makes_need_room(tmp_path: Path) -> None:
    """The counters above all, which get all of theirs at once."""
    data_dir, chosen = DataDir(tmp_path), settings()
    first = room_bytes(chosen, data_dir)
    data_dir.usage_slots.write_bytes(bytes(SIZE_BYTES))
    with_slots = room_bytes(chosen, data_dir)
    data_dir.queues.write_bytes(b"rows")

    assert first - with_slots == SIZE_BYTES
    assert 0 < room_bytes(chosen, data_dir) < with_slots


def test_file_that_a_start_left_empty_is_made_again(tmp_path: Path) -> None:
    data_dir, chosen = DataDir(tmp_path), settings()
    before = room_bytes(chosen, data_dir)

    data_dir.queues.touch()

    assert room_bytes(chosen, data_dir) == before


def test_journal_needs_room_for_a_small_segment(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    on_redis = ("queues.driver=redis", "redis.addresses=127.0.0.1:6379")
    without, with_journal = room_bytes(settings("queues.journal=false"), data_dir), room_bytes(settings(), data_dir)

    assert with_journal - without == SMALLEST
    assert room_bytes(settings(*on_redis), data_dir) <= without


def test_stores_on_servers_need_no_room(tmp_path: Path) -> None:
    on_kafka = settings("events.driver=kafka", "kafka.brokers=kafka-1:9092")

    assert room_bytes(on_kafka, DataDir(tmp_path)) < room_bytes(settings(), DataDir(tmp_path))
