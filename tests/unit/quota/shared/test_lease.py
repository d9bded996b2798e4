"""A hub's place in the ledger."""

from __future__ import annotations

import pytest

from iothub_services.quota.shared import scripts
from iothub_services.quota.shared.keys import Keys
from iothub_services.quota.shared.lease import LapsedError, Lease
from tests.support.in_process.shared_quota import SCOPE, World, done


def turn(lease: Lease) -> object:
    return done(lease.ask(scripts.TURN, [lease.keys.wanted], scripts.WANTED_MS))


def test_name_is_new_whenever_it_comes(world: World) -> None:
    """Also within one millisecond; who was there before gives everybody time to declare."""
    lease = Lease(world.call, Keys(lambda: SCOPE), "1-ab", world)
    names = set()
    for _ in range(3):
        assert done(lease.enter()) == scripts.SETTLE_MS
        names.add(lease.name)
    world.now += 10.0
    assert turn(lease) == [0, 3]
    done(lease.claim())

    assert len(names) == 3
    assert turn(lease) == [0, 1]


def test_without_a_name_nothing_is_asked(world: World) -> None:
    """Before it has entered, after it was lost, and after it has left."""
    lease = Lease(world.call, Keys(lambda: SCOPE), "1-ab", world)
    for change in (lease.lose, lease.lose):
        change()
        with pytest.raises(LapsedError):
            turn(lease)
    done(lease.leave())
    assert world.calls == 0
    done(lease.enter())
    done(lease.leave())

    assert lease.name == ""
    assert world.ledger.names(lease.keys.hubs) == []
