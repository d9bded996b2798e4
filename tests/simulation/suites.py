"""What is run for each milestone: its checks and workloads together with those before it."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.checks import Bounds, Evidence, OneConnection, Refusals, Silence
from tests.simulation.directory import Devices, DirectorySimulation, Holding
from tests.simulation.groups import Members, Sharing
from tests.simulation.hub import SimHub
from tests.simulation.known import KeptSessions, Knowing
from tests.simulation.membership import membership_suite
from tests.simulation.queued import StoredClients, Storing
from tests.simulation.races import RacingClients, schedule_of_races
from tests.simulation.retained import Keeping, Retainers
from tests.simulation.routed import Clients, Routing
from tests.simulation.schedule import Schedule
from tests.simulation.simulation import Simulation, Suite, ViolationError
from tests.simulation.traffic import Delivery, Traffic
from tests.simulation.wills import Watching, WillClients


def links_suite() -> Suite:
    """Links alone."""
    delivery = Delivery()

    def traffic(hub: SimHub) -> Traffic:
        return Traffic(hub, delivery)

    return Suite([delivery, Evidence(), Silence(), OneConnection(), Bounds(), Refusals()], [traffic])


def routes_suite() -> Suite:
    """Clients that hear each other over routes between their hubs."""
    routing = Routing()

    def clients(hub: SimHub) -> Clients:
        return Clients(hub, routing)

    return Suite([routing, Evidence(), Silence(), OneConnection(), Bounds()], [clients])


def races_suite() -> Suite:
    """Subscriptions that race with messages of the other hub."""
    routing = Routing()

    def clients(hub: SimHub) -> RacingClients:
        return RacingClients(hub, routing)

    return Suite([routing, Evidence(), Bounds()], [clients], schedule=schedule_of_races)


def known_suite() -> Suite:
    """Persistent sessions, which every hub has to know."""
    routing, knowing = Routing(), Knowing()

    def sessions(hub: SimHub) -> KeptSessions:
        return KeptSessions(hub, routing, knowing)

    return Suite([knowing, routing, Evidence(), Silence(), OneConnection(), Bounds()], [sessions])


def directory_suite() -> Suite:
    """Clients with the same Client Identifiers at every hub."""
    holding = Holding()

    def devices(hub: SimHub) -> Devices:
        return Devices(hub, holding)

    return Suite([holding, Evidence(), Silence(), OneConnection(), Bounds()], [devices], DirectorySimulation)


def retained_suite() -> Suite:
    """Retained messages that every hub writes and replays."""
    keeping = Keeping()

    def retainers(hub: SimHub) -> Retainers:
        return Retainers(hub, keeping)

    return Suite([keeping, Evidence(), Silence(), OneConnection(), Bounds()], [retainers])


def groups_suite() -> Suite:
    """Members of shared groups at several hubs."""
    sharing = Sharing()

    def members(hub: SimHub) -> Members:
        return Members(hub, sharing)

    return Suite([sharing, Evidence(), Silence(), OneConnection(), Bounds()], [members])


def queued_suite() -> Suite:
    """Persistent sessions whose messages other hubs store."""
    storing = Storing()

    def clients(hub: SimHub) -> StoredClients:
        return StoredClients(hub, storing)

    return Suite([storing, Evidence(), Silence(), OneConnection(), Bounds()], [clients])


def wills_suite() -> Suite:
    """Clients with Wills at several hubs."""
    watching = Watching()

    def clients(hub: SimHub) -> WillClients:
        return WillClients(hub, watching)

    return Suite([watching, Evidence(), Silence(), OneConnection(), Bounds()], [clients])


SUITES: dict[str, Callable[[], Suite]] = {
    "links": links_suite,
    "membership": membership_suite,
    "races": races_suite,
    "routes": routes_suite,
    "known": known_suite,
    "groups": groups_suite,
    "directory": directory_suite,
    "retained": retained_suite,
    "queued": queued_suite,
    "wills": wills_suite,
}


def plan_of(seed: int, suite: str) -> Schedule:
    """Return the schedule that a suite makes of a seed."""
    return SUITES[suite]().schedule(seed)


def fault_of(plan: Schedule, suite: str = "links", log: Callable[[str], None] | None = None) -> str | None:
    """Run one schedule; return what broke, None if nothing did."""
    try:
        made = SUITES[suite]()
        (made.simulation or Simulation)(plan, made, log).run()
    except ViolationError as violation:
        return str(violation)
    return None


def first_fault(seeds: range, suite: str = "links", more: str = "") -> str | None:
    """Run schedules until one breaks a rule; return what broke and the command that repeats it. `more`: for that command."""
    for seed in seeds:
        found = fault_of(plan_of(seed, suite), suite)
        if found is not None:
            return f"{found}\nrepeat: .venv/bin/python -m tests.simulation {seed} --suite {suite}{more}"
    return None
