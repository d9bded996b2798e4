"""Hubs that share one ledger: what is granted, what falls back, what is declared anew."""

from __future__ import annotations

from pathlib import Path

from twisted.python.failure import Failure

from iothub.base.errors import UnavailableError
from iothub_services.quota.names import Quota
from iothub_services.quota.resolve import resolve_texts
from iothub_services.quota.shared.service import Mode
from iothub_services.quota.shared.tenant import SharedTenant
from tests.support.in_process.shared_quota import HubHalf, World, done, turns

LIMIT = 20


def hub(world: World, folder: Path, name: str) -> tuple[HubHalf, SharedTenant]:
    half = HubHalf(world, name, folder)
    return half, half.tenant(f"connections={LIMIT}")


def settled(world: World, *halves: HubHalf) -> None:
    turns(world, *halves, seconds=4.0)


def connect(half: HubHalf, tenant: SharedTenant) -> bool:
    """One CONNECT whose wait ends at once, or never."""
    answers: list[bool] = []
    half.enter(tenant).addCallback(answers.append)
    return answers == [True]


def used(*tenants: SharedTenant) -> int:
    return sum(tenant.ledger.used(Quota.CONNECTIONS) for tenant in tenants)


def test_limit_holds_over_all_hubs_and_is_reached(world: World, tmp_path: Path) -> None:
    """Who asks at one hub alone gets everything, once the others have given back what they do not use."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    assert connect(b, acme_b)
    outcomes: list[bool] = []
    for _ in range(40):
        a.enter(acme).addCallback(outcomes.append)
    turns(world, b, a, seconds=2.0)

    assert (sum(outcomes), len(outcomes)) == (LIMIT - 1, 40)
    assert used(acme, acme_b) == LIMIT


def test_what_is_given_back_can_be_had_at_another_hub(world: World, tmp_path: Path) -> None:
    """All of it, after the next turn of who gave it back."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    assert all(connect(a, acme) for _ in range(LIMIT))
    assert not connect(b, acme_b)
    acme.ledger.release(Quota.CONNECTIONS, LIMIT)
    turns(world, a, b, seconds=0.4)

    assert sum(connect(b, acme_b) for _ in range(LIMIT // 2)) == LIMIT // 2


def test_hub_that_died_holds_its_units_until_its_lease_ends(world: World, tmp_path: Path) -> None:
    """Not a moment longer; nobody gave them back."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    assert all(connect(a, acme) for _ in range(LIMIT))
    turns(world, b, seconds=9.0)
    assert not connect(b, acme_b)
    turns(world, b, seconds=1.5)

    assert connect(b, acme_b)


def test_successor_in_the_same_data_directory_needs_not_wait_for_the_lease(world: World, tmp_path: Path) -> None:
    """What the killed hub held goes as soon as the next one has declared what it has."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    assert all(connect(a, acme) for _ in range(LIMIT))
    again, _ = hub(world, tmp_path, "a")
    turns(world, again, b, seconds=0.3)

    assert connect(b, acme_b)


def test_paused_hub_declares_what_it_has_before_it_grants_more(world: World, tmp_path: Path) -> None:
    """Thirty seconds: its units went to others. It keeps its clients, and lets nobody in until the limit has room for that."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    assert all(connect(a, acme) for _ in range(10))
    turns(world, b, seconds=30.0)
    assert sum(connect(b, acme_b) for _ in range(15)) == 15

    assert not connect(a, acme)
    turns(world, a, b, seconds=5.0)
    assert used(acme, acme_b) == 25
    assert not connect(a, acme)
    assert not connect(b, acme_b)
    acme_b.ledger.release(Quota.CONNECTIONS, 6)
    turns(world, a, b, seconds=2.5)
    assert connect(a, acme)
    assert used(acme, acme_b) == LIMIT
    assert a.modes[-1] is Mode.SHARED


def paused(world: World, folder: Path) -> tuple[HubHalf, SharedTenant]:
    """A hub with 10 clients and some units to spare, after thirty seconds in which another one got all that it held."""
    (a, acme), (b, acme_b) = hub(world, folder, "a"), hub(world, folder, "b")
    settled(world, a, b)
    assert all(connect(a, acme) for _ in range(10))
    turns(world, a, b, seconds=0.2)
    assert acme.ledger.held()[Quota.CONNECTIONS][0] > 10
    a.turn_without_answer()
    turns(world, b, seconds=30.0)
    assert all(connect(b, acme_b) for _ in range(LIMIT))
    return a, acme


def test_answer_from_before_a_pause_opens_no_door(world: World, tmp_path: Path) -> None:
    """It waited in the socket while the hub was stopped: it says how the lease was then."""
    a, acme = paused(world, tmp_path)
    a.hear_one()
    assert not connect(a, acme)
    a.hear()

    assert not connect(a, acme)


def test_lapsed_hub_lets_nobody_in_until_it_has_declared(world: World, tmp_path: Path) -> None:
    """Between hearing that the lease has ended and coming back, what was granted is others'."""
    a, acme = paused(world, tmp_path)
    a.hear()
    a.turn()
    assert not connect(a, acme)
    turns(world, a, seconds=5.0)

    assert not connect(a, acme)
    assert used(acme) == 10


def test_hub_that_cannot_ask_after_a_pause_has_no_share(world: World, tmp_path: Path) -> None:
    """Who was stopped has not kept its share; who goes on while Redis is away has."""
    a, acme = paused(world, tmp_path)
    a.is_cut_off = True
    a.hear()
    turns(world, a, seconds=2.0)
    assert a.modes[-1] is Mode.DEGRADED
    assert not connect(a, acme)


def test_units_to_spare_are_given_back_when_a_paused_hub_returns_with_more_than_is_left(
    world: World, tmp_path: Path
) -> None:
    """Nobody waits for them; but together with what it has they are above the limit."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    assert all(connect(a, acme) for _ in range(10))
    turns(world, b, seconds=30.0)
    assert all(connect(b, acme_b) for _ in range(12))
    turns(world, b, seconds=0.2)
    assert acme_b.ledger.held()[Quota.CONNECTIONS][0] > 12
    turns(world, a, b, seconds=0.3)

    assert not connect(b, acme_b)


def test_what_was_given_back_is_not_used_while_the_answer_is_under_way(world: World, tmp_path: Path) -> None:
    """Another hub may have it already."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    assert connect(a, acme)
    turns(world, a, seconds=0.2)
    outcomes: list[bool] = []
    for _ in range(LIMIT):
        b.enter(acme_b).addCallback(outcomes.append)
    a.turn_without_answer()
    a.hear_one()  # what is wanted
    turns(world, b, seconds=0.3)
    assert sum(outcomes) == LIMIT - 1
    connect(a, acme)
    a.hear()

    assert used(acme, acme_b) == LIMIT


def test_tenant_that_comes_back_while_it_is_closed_has_nothing(world: World, tmp_path: Path) -> None:
    """What it held was given back with the question that is under way."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    assert connect(a, acme)
    acme.ledger.release(Quota.CONNECTIONS)
    turns(world, a, seconds=0.2)
    acme.close()
    a.turn_without_answer()
    a.hear_one()
    assert all(connect(b, acme_b) for _ in range(LIMIT))

    assert not connect(a, a.tenant(f"connections={LIMIT}"))


def test_emptied_redis_is_filled_again_by_the_hubs(world: World, tmp_path: Path) -> None:
    """Nothing is granted until all had time to declare; then what they have counts."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    assert all(connect(a, acme) for _ in range(15))
    world.flush()
    turns(world, b, seconds=0.5)
    assert not connect(b, acme_b) or used(acme, acme_b) <= LIMIT
    turns(world, a, b, seconds=5.0)

    assert [connect(b, acme_b) for _ in range(10)].count(True) <= 5
    turns(world, a, b, seconds=2.0)
    assert used(acme, acme_b) <= LIMIT
    assert (Mode.INITIALISING in b.modes, b.modes[-1]) == (True, Mode.SHARED)


def test_last_share_is_kept_while_redis_is_away(world: World, tmp_path: Path) -> None:
    """What was granted may be used; beyond it nobody gets in, and hears that it is not his quota."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    assert all(connect(a, acme) for _ in range(4))
    world.is_away = True
    turns(world, a, b, seconds=0.3)
    while connect(a, acme):
        assert used(acme, acme_b) <= LIMIT
    failures: list[Failure] = []
    b.enter(acme_b, LIMIT).addErrback(failures.append)

    assert used(acme) >= 4
    assert a.modes[-1] is Mode.DEGRADED
    assert len(failures) == 1
    assert isinstance(failures[0].value, UnavailableError)


def test_redis_that_comes_back_after_a_long_time_has_lost_nothing(world: World, tmp_path: Path) -> None:
    """Every lease has ended meanwhile; but nobody was there, so none has lapsed."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    assert all(connect(a, acme) for _ in range(15))
    world.is_away = True
    turns(world, a, b, seconds=60.0, step_s=1.0)
    world.is_away = False
    turns(world, b, seconds=0.2)
    taken = sum(connect(b, acme_b) for _ in range(LIMIT))
    turns(world, a, b, seconds=5.0)

    assert 15 + taken <= LIMIT
    assert used(acme, acme_b) <= LIMIT
    assert a.modes[-1] is Mode.SHARED


def test_fail_over_that_lost_the_last_words_is_noticed(world: World, tmp_path: Path) -> None:
    """A replica that is behind knows less of a hub than the hub itself: it declares everything."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    before = world.ledger.saved()
    assert all(connect(a, acme) for _ in range(LIMIT))
    world.ledger.fall_back(before)
    turns(world, a, b, seconds=0.3)

    assert not connect(b, acme_b)
    assert a.shared.returns == 1


def test_lowered_limit_leaves_who_is_there_and_lets_nobody_in(world: World, tmp_path: Path) -> None:
    """As on one machine; and a limit that is lifted is no more asked for."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    assert all(connect(a, acme) for _ in range(10))
    for tenant in (acme, acme_b):
        tenant.ledger.set_limits(resolve_texts("connections=5"))
    turns(world, a, b, seconds=2.5)
    assert (connect(a, acme), connect(b, acme_b)) == (False, False)
    for tenant in (acme, acme_b):
        tenant.ledger.set_limits(resolve_texts(""))
    turns(world, a, b, seconds=0.3)
    calls = world.calls

    assert all(connect(b, acme_b) for _ in range(100))
    assert world.calls == calls


def test_hub_that_stops_gives_everything_back(world: World, tmp_path: Path) -> None:
    """Its clients have been sent away: others may come at once."""
    (a, acme), (b, acme_b) = hub(world, tmp_path, "a"), hub(world, tmp_path, "b")
    settled(world, a, b)
    assert all(connect(a, acme) for _ in range(LIMIT))
    acme.ledger.release(Quota.CONNECTIONS, 2)
    failures: list[Failure] = []
    done(a.shared.stop())
    a.enter(acme).addErrback(failures.append)

    assert connect(b, acme_b)
    assert len(failures) == 1
