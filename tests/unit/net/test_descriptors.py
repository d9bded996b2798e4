"""How many clients the file descriptors of a process allow."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from iothub.net.descriptors import Descriptors, count_open, file_limit, reserve_of


def test_what_is_open_and_a_reserve_are_kept_back() -> None:
    descriptors = Descriptors(64, lambda: 40)
    descriptors.measure()

    assert (descriptors.servable, descriptors.others, descriptors.reserve) == (8, 40, 16)


def test_clients_are_not_counted_twice() -> None:
    descriptors = Descriptors(64, lambda: 45)
    descriptors.clients = 5
    descriptors.measure()

    assert (descriptors.servable, descriptors.room, descriptors.open) == (8, 3, 45)


def test_limit_does_not_rise_when_something_was_closed_for_a_moment() -> None:
    """It comes again: the limit that `status` shows should not jump."""
    counts = iter((40, 30))
    descriptors = Descriptors(64, lambda: next(counts))
    descriptors.measure()
    descriptors.measure()

    assert descriptors.servable == 8


def test_limit_that_allows_no_client_serves_none() -> None:
    descriptors = Descriptors(64, lambda: 60)
    descriptors.measure()

    assert (descriptors.servable, descriptors.room) == (0, 0)


def test_reserve_grows_with_the_limit_and_is_bounded() -> None:
    assert [reserve_of(limit) for limit in (64, 1024, 1 << 20)] == [16, 64, 256]


def test_low_begins_at_nine_tenths_and_ends_below_eight() -> None:
    descriptors = Descriptors(116, lambda: descriptors.clients)
    found = []
    for clients in (89, 90, 85, 80, 79, 85):
        descriptors.clients = clients
        descriptors.measure()
        found.append(descriptors.is_low)

    assert descriptors.servable == 100
    assert found == [False, True, True, True, False, False]


def test_refused_client_is_low_even_if_it_was_a_short_moment() -> None:
    descriptors = Descriptors(116, lambda: 0)
    descriptors.refused += 1
    descriptors.measure()
    assert descriptors.is_low

    descriptors.measure()
    assert not descriptors.is_low


def test_many_clients_are_not_counted_on_the_reactor() -> None:
    descriptors = Descriptors(1 << 20, lambda: 1 << 19)
    descriptors.clients = 100_000
    descriptors.measure()

    assert (descriptors.others, descriptors.open) == (0, 100_000)


def test_no_descriptor_to_count_with_is_low() -> None:
    def fail() -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    descriptors = Descriptors(116, fail)
    descriptors.measure()

    assert descriptors.is_low


def test_descriptors_of_this_process_are_counted(tmp_path: Path) -> None:
    before = count_open()
    with (tmp_path / "file").open("w"):
        assert count_open() == before + 1


def test_limit_of_another_process_can_be_asked_for() -> None:
    assert file_limit(os.getpid()) == file_limit()
