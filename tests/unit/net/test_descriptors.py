"""How many clients the file descriptors of a process allow."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from iothub.net.descriptors import Descriptors, count_open, file_limit, least_limit, reserve_of


def test_what_the_hub_opens_and_a_reserve_are_kept_back() -> None:
    descriptors = Descriptors(64, lambda: 40, own=42)
    assert descriptors.servable == 6

    descriptors.measure()

    assert (descriptors.servable, descriptors.others, descriptors.reserve) == (6, 40, 16)


def test_clients_are_not_counted_twice() -> None:
    descriptors = Descriptors(64, lambda: 45, own=40)
    descriptors.clients = 5
    descriptors.measure()

    assert (descriptors.servable, descriptors.room, descriptors.open) == (8, 3, 45)


def test_what_comes_on_top_takes_half_of_the_reserve_before_fewer_clients_are_let_in() -> None:
    """A page that is read, or a command that asks, does not change the limit that `status` shows."""
    counts = iter((42, 50, 53))
    descriptors = Descriptors(64, lambda: next(counts), own=42)
    found = []
    for _ in range(3):
        descriptors.measure()
        found.append(descriptors.servable)

    assert found == [6, 6, 3]


def test_who_is_there_is_served() -> None:
    """`status` never shows more connections than its limit; nobody new is let in."""
    descriptors = Descriptors(64, lambda: 60, own=42)
    descriptors.clients = 4
    descriptors.measure()
    assert (descriptors.servable, descriptors.room) == (4, 0)

    descriptors.count_out()
    descriptors.measure()

    assert (descriptors.servable, descriptors.room) == (3, 0)


def test_limit_does_not_rise_when_something_was_closed_for_a_moment() -> None:
    """It comes again: the limit that `status` shows should not jump."""
    counts = iter((50, 40))
    descriptors = Descriptors(64, lambda: next(counts), own=40)
    descriptors.measure()
    descriptors.measure()

    assert descriptors.servable == 6


def test_limit_that_allows_no_client_serves_none() -> None:
    descriptors = Descriptors(64, lambda: 60, own=42)
    descriptors.measure()

    assert (descriptors.servable, descriptors.room) == (0, 0)
    assert descriptors.is_low


def test_reserve_grows_with_the_limit_and_is_bounded() -> None:
    assert [reserve_of(limit) for limit in (64, 1024, 1 << 20)] == [16, 64, 256]


def test_least_limit_is_the_lowest_one_that_leaves_enough() -> None:
    for needed in (1, 45, 240, 241, 255, 3_839, 3_840, 20_000):
        least = least_limit(needed)
        assert least - reserve_of(least) == needed
        assert least - 1 - reserve_of(least - 1) < needed


def test_limit_for_clients_is_one_with_which_they_are_served() -> None:
    descriptors = Descriptors(64, lambda: 50, own=42)
    descriptors.measure()

    assert Descriptors(descriptors.limit_for(1000), own=42).servable >= 1000


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
