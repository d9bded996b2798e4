"""What hubs tell the owner of many keys when hubs come and go: entries, many in a frame, and none that is out of date. iothub.peers.directory."""

from __future__ import annotations

from iothub.peers.ports import PeerId
from iothub.peers.view import Key, View
from tests.support.in_process.directory_net import ALL, ONE, THREE, TWO, Hub, Net


def connected(hub: Hub, owner: PeerId, count: int) -> list[Key]:
    """Connect so many clients whose keys this hub owns among all."""
    view = View(0, ALL)
    keys = [key for key in ((1, f"m{number}") for number in range(1_000)) if view.owner(key) == owner][:count]
    for key in keys:
        hub.connect(key)
    return keys


def test_an_owner_answers_once_it_has_the_last_entries() -> None:
    """Clients are noted over three turns, and their entries sent over three more, the first of which is the last of the others."""
    net = Net(ONE, TWO, THREE, turn_keys=2)
    one, two, three = net.hubs.values()
    keys = connected(one, THREE, 5)
    for hub in (one, two, three):
        hub.see(*ALL)
    two.hold(keys[0])
    assert one.sent == []

    owned = []
    for _ in range(4):
        assert one.closing == {}
        net.turn()
        owned.append(len(three.directory.owned))

    assert (owned, list(one.closing)) == ([0, 2, 4, 5], [keys[0]])


def test_what_is_released_before_its_entry_is_sent_is_not_sent() -> None:
    net = Net(ONE, THREE, turn_keys=2)
    one, three = net.hubs.values()
    keys = connected(one, THREE, 5)
    for hub in (one, three):
        hub.see(ONE, THREE)
    net.turn()
    net.turn()
    assert len(three.directory.owned) == 2
    for key in keys:
        one.disconnect(key)
        one.finish(key)

    net.turn()
    net.turn()

    assert (len(three.directory.owned), net.soon) == (0, [])
    assert len(three.hold(keys[0])) == 1


def test_clients_that_come_and_go_while_others_are_noted_are_entries_if_they_are_there_then() -> None:
    net = Net(ONE, THREE, turn_keys=2)
    one, three = net.hubs.values()
    first, *others, last = connected(one, THREE, 8)
    one.disconnect(last)
    one.see(ONE, THREE)
    three.see(ONE, THREE)
    one.connect(last)
    one.disconnect(first)
    assert one.hold(others[0]) == [0.0]
    one.connected.remove(others[0])
    one.directory.let_go(others[0])

    while net.soon:
        net.turn()

    assert {key for key in (first, *others, last) if three.directory.owned.holder(key)} == {*others[1:], last}


def test_a_hub_that_is_alone_again_before_its_clients_are_noted_has_said_nothing() -> None:
    net = Net(ONE, THREE, turn_keys=2)
    one, _ = net.hubs.values()
    connected(one, THREE, 5)
    one.see(ONE, THREE)
    one.see(ONE)

    net.turn()

    assert (one.sent, net.soon) == ([], [])


def test_a_view_that_changes_before_the_last_entries_loses_no_key() -> None:
    """An owner that was none for a moment has forgotten what it had."""
    net = Net(ONE, TWO, THREE, turn_keys=2)
    one, _, three = net.hubs.values()
    keys = connected(one, THREE, 5)
    one.see(*ALL)
    while not len(three.directory.owned):
        net.turn()
    for version, members in enumerate((ALL, (ONE, TWO), ALL)):
        for hub in net.hubs.values():
            if hub.id in members:
                hub.directory.set_view(View(version, members))
        net.settle()
    while net.soon:
        net.turn()

    assert {key for key in keys if (three.directory.owned.holder(key) or (None,))[0] == ONE} == set(keys)


def test_a_hub_that_is_alone_sends_no_further_entries() -> None:
    net = Net(ONE, THREE, turn_keys=2)
    one, three = net.hubs.values()
    connected(one, THREE, 5)
    one.see(ONE, THREE)
    while not len(three.directory.owned):
        net.turn()
    one.sent.clear()
    one.see(ONE)

    net.turn()

    assert (one.sent, net.soon) == ([], [])


def of_one_at_three() -> tuple[Net, list[Key]]:
    """Return three hubs, and the keys of five clients of the first one that the third one owns."""
    net = Net(ONE, TWO, THREE, turn_keys=2)
    keys = connected(net.hubs[ONE], THREE, 5)
    for hub in net.hubs.values():
        hub.see(*ALL)
    while net.soon:
        net.turn()
    assert len(net.hubs[THREE].directory.owned) == 5
    return net, keys


def test_what_a_hub_had_is_free_at_once_when_it_is_gone_and_its_memory_later() -> None:
    """However much it was, no turn is long."""
    net, keys = of_one_at_three()
    three = net.hubs[THREE]

    three.directory.peer_gone(ONE)

    assert [three.directory.owned.holder(key) for key in keys] == [None] * 5
    stored = three.directory.owned._holders._keys
    assert (len(three.directory.owned), len(stored)) == (0, 5)
    left = []
    while net.soon:
        net.turn()
        left.append(len(stored))
    assert left == [3, 1, 0]


def test_memory_of_a_hub_that_was_gone_is_not_taken_for_that_of_another() -> None:
    net, keys = of_one_at_three()
    _, two, three = net.hubs.values()

    three.directory.peer_gone(ONE)
    two.see(TWO, THREE)
    three.see(TWO, THREE)
    net.turn()  # not all is swept
    taken = two.hold(keys[0])
    while net.soon:
        net.turn()

    assert len(taken) == 1
    holders = [three.directory.owned.holder(key) for key in keys]
    assert [None if each is None else each[0] for each in holders] == [TWO, None, None, None, None]
