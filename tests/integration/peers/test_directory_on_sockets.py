"""Session directories over real links: take-overs, a storm of other clients, and many entries that move."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from iothub.net.backend import Backend
from iothub.testing.reactor_thread import ReactorThread
from tests.support.in_process.directories_on_sockets import DirectoryHub, linked_hubs

TAKE_OVERS = 100
STORM = 5_000
ENTRIES = 20_000


@pytest.fixture
def hubs(twin: Backend, tmp_path: Path) -> Iterator[Sequence[DirectoryHub]]:
    with ReactorThread() as thread, contextlib.ExitStack() as closing:
        made = linked_hubs(twin, thread, 3, tmp_path)
        for hub in made:
            closing.callback(hub.close)
        yield made


def connect(hub: DirectoryHub, client_id: str) -> None:
    done: list[bool] = []
    hub.thread.call(lambda: hub.connect((1, client_id), lambda: done.append(True)))
    hub.thread.until(lambda: done)


def test_a_client_is_at_one_hub_at_a_time_whatever_else_happens(hubs: Sequence[DirectoryHub]) -> None:
    """It goes round the hubs while thousands of others connect."""
    thread = hubs[0].thread
    ids = [hub.id for hub in hubs]
    for hub in hubs:
        hub.see(*ids)
    done: list[bool] = []
    for at, hub in enumerate(hubs):
        for first in range(at, STORM, 300):
            names = [f"storm-{number}" for number in range(first, min(first + 300, STORM), 3)]
            thread.call(
                lambda hub=hub, names=names: [hub.connect((1, name), lambda: done.append(True)) for name in names]  # type: ignore[misc]
            )

    for number in range(TAKE_OVERS):
        connect(hubs[number % 3], "one")
        assert sum((1, "one") in hub.connected for hub in hubs) == 1
    thread.until(lambda: len(done) == STORM)

    assert sum(len(hub.connected) for hub in hubs) == STORM + 1
    assert sum(len(hub.directory.owned) for hub in hubs) == STORM + 1


def test_all_entries_are_known_to_their_owners_after_the_view_changes(hubs: Sequence[DirectoryHub]) -> None:
    """Each hub was alone, and has many clients; then one leaves the view again."""
    one, two, three = hubs
    thread = one.thread
    for hub in hubs:
        hub.connected.update((1, f"{hub.id.node}-{number}") for number in range(ENTRIES))
    for hub in hubs:
        hub.see(one.id, two.id, three.id)
    connect(two, "1-0")
    thread.until(lambda: sum(len(hub.directory.owned) for hub in hubs) == 3 * ENTRIES)

    for hub in (one, two):
        hub.see(one.id, two.id)
    thread.call(partial(three.links.close))
    connect(one, "2-0")
    thread.until(lambda: sum(len(hub.directory.owned) for hub in (one, two)) >= 2 * ENTRIES)

    assert (1, "2-0") not in two.connected
    # Hub two may have been noting its clients still when "1-0" came, and was alone: then the owner asks one of the two to leave.
    thread.until(lambda: ((1, "1-0") in one.connected) != ((1, "1-0") in two.connected))
