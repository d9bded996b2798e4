"""Views: every hub finds the same owner, keys are spread evenly, and few of them move."""

from __future__ import annotations

from collections import Counter

from iothub.peers.ports import PeerId
from iothub.peers.view import View

ONE, TWO, THREE = PeerId(1, 4), PeerId(2, 1), PeerId(3, 1)
KEYS = [(tenant, f"device-{number}") for tenant in (1, 2) for number in range(1_500)]
OWNERS = [1, 3, 3, 1, 2, 1, 3, 1, 1, 1, 2, 1]  # of the first keys


def test_the_order_of_the_members_does_not_matter_and_the_version_does() -> None:
    assert View(1, [ONE, TWO]) == View(1, [TWO, ONE])
    assert View(1, [ONE, TWO]) != View(2, [ONE, TWO])
    assert len({View(1, [ONE, TWO]), View(1, [TWO, ONE])}) == 1


def test_owners_are_the_same_in_every_process() -> None:
    """Python's own hash is not: these stand for what any hub of this version finds."""
    view = View(1, [ONE, TWO, THREE])

    assert [view.owner(key).node for key in KEYS[:12]] == OWNERS


def test_keys_are_spread_evenly() -> None:
    counts = Counter(View(1, [ONE, TWO, THREE]).owner(key) for key in KEYS)

    assert all(900 < counts[each] < 1_100 for each in (ONE, TWO, THREE))


def test_only_the_keys_of_a_hub_that_goes_move() -> None:
    before, after = View(1, [ONE, TWO, THREE]), View(2, [ONE, THREE])

    moved = {before.owner(key) for key in KEYS if before.owner(key) != after.owner(key)}

    assert moved == {TWO}
    assert Counter(after.owner(key) for key in KEYS if before.owner(key) == TWO).total() > 900


def test_the_owner_comes_first_and_the_others_follow_by_weight() -> None:
    """When the owner goes, the next one owns the key."""
    view, without = View(1, [ONE, TWO, THREE]), View(2, [TWO, THREE])

    for key in KEYS[:50]:
        ranked = view.ranked(key)
        assert (ranked[0], set(ranked)) == (view.owner(key), {ONE, TWO, THREE})
        assert without.ranked(key) == [each for each in ranked if each != ONE]
