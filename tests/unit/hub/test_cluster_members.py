"""What `iothub cluster status` gets from a hub: itself, and every other hub of the accounts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.defer import Deferred, succeed

from iothub.config.sections import Cluster, Config, Node
from iothub.hub.cluster.node_commands import NodeState
from iothub.hub.cluster_members import ClusterMembers
from iothub.peers.ports import LinkStatus, PeerId
from iothub_tenants.accounts.hubs import HubRow

ROWS = [
    (HubRow(0, 1, "zero", 0, 1, address="zero:1", version="1.0"), True),
    (HubRow(2, 1, "two", 0, 1, address="two:1", version="1.1"), True),
    (HubRow(3, 1, "three", 0, 1), True),
    (HubRow(4, 1, "four", 0, 1, gone_by=4, gone_why="left", address="four:1"), False),
    (HubRow(5, 1, "five", 0, 1, address="five:1", version="1.0"), True),
    (HubRow(6, 1, "six", 0, 1, state="joining", address="six:1"), True),
    (HubRow(7, 1, "seven", 0, 1, gone_by=1, gone_why="silent", address="seven:1"), False),
    (HubRow(8, 1, "eight", 0, 1, gone_by=0, gone_why="cut_off", address="eight:1"), True),  # and waited for
]


def status(node: int, state: Any, **other: Any) -> LinkStatus:
    return LinkStatus(PeerId(node, 1), "", "", state, 1.0, 5, None, other.get("trip_s"), 0, 0, 0)


def members(
    *,
    rows: object = ROWS,
    has_links: bool = True,
    said: tuple[NodeState, ...] = (),
    state: str = "up",
    refused: tuple[int, ...] = (),
) -> list[Any]:
    links = SimpleNamespace(
        address="one:1",
        status=lambda: [status(0, "up", trip_s=0.0004), status(2, "refused"), status(6, "up")],
        trouble=lambda node: {2: "other_installation", 5: "Connection refused"}.get(node, ""),
        is_refused=lambda node: node in refused,
    )
    settings = Config(node=Node(number=1, name="one"), cluster=Cluster())
    cluster = None if rows is None else SimpleNamespace(state=state, members=SimpleNamespace(rows=lambda: rows))
    process = SimpleNamespace(settings=settings, version="1.0")
    control = SimpleNamespace(cluster=cluster, links=links if has_links else None)
    sockets = SimpleNamespace(nodes=SimpleNamespace(states=lambda: succeed({state.node: state for state in said})))
    rows_sent: list[Any] = []
    reply = SimpleNamespace(rows=lambda rows: succeed(rows_sent.extend(rows)))
    made = ClusterMembers(cast("Any", process), cast("Any", control), cast("Any", sockets))
    answer = made.answer(cast("Any", None), cast("Any", reply))
    assert Deferred.fromCoroutine(answer).result == {}
    if rows is ROWS and has_links and not said and not refused and state == "up":
        assert made.counts() == {"up": 2, "refused": 1, "down": 2, "joining": 1, "gone": 2, "left": 1}
    return rows_sent


def test_hub_whose_certificate_does_not_fit_is_refused() -> None:
    """It has not said its name, so no link knows it."""
    states = {row["node"]: row["state"] for row in members(refused=(5, 6, 7))}

    assert [states[node] for node in (5, 6, 7)] == ["refused", "joining", "gone"]


def test_every_hub_of_the_accounts_is_listed_by_number() -> None:
    found = members()

    assert [(row["node"], row["state"], row["is_self"], row["cause"]) for row in found] == [
        (0, "up", False, ""),
        (1, "up", True, ""),
        (2, "refused", False, "other_installation"),
        (3, "down", False, "its cluster.listen is not set"),
        (4, "left", False, ""),
        (5, "down", False, "Connection refused"),
        (6, "joining", False, ""),
        (
            7,
            "gone",
            False,
            "its heartbeat and its link stood still; one that still runs begins again by itself, else start it",
        ),
        (8, "gone", False, "the link to another hub was down; it begins again by itself"),
    ]
    assert (found[0]["round_trip_ms"], found[0]["unacknowledged_bytes"], found[0]["version"]) == (0.4, 5, "1.0")
    assert [row["address"] for row in found][:5] == ["zero:1", "one:1", "two:1", "", "four:1"]


def test_hub_that_joins_says_so_of_itself() -> None:
    assert members(state="joining")[1]["state"] == "joining"


def test_hub_without_links_says_why_no_link_is_up() -> None:
    found = members(has_links=False)

    assert [(row["node"], row["state"]) for row in found][:3] == [(0, "down"), (1, "up"), (2, "down")]
    assert {row["cause"] for row in found if row["state"] == "down"} == {"cluster.listen is not set at this hub"}


def test_hub_with_stores_of_its_own_lists_itself() -> None:
    assert [(row["node"], row["state"]) for row in members(rows=None, has_links=False)] == [(1, "up")]


def test_hubs_that_answer_say_how_many_clients_they_have_and_whether_they_drain() -> None:
    """One whose link does not work is down, whatever it said last."""
    said = (
        NodeState(0, 7, is_draining=True, reference=""),
        NodeState(1, 5, is_draining=True, reference=""),
        NodeState(2, 3, is_draining=True, reference=""),
    )

    found = members(said=said)

    assert [(row["node"], row["state"], row["clients"]) for row in found] == [
        (0, "draining", 7),
        (1, "draining", 5),
        (2, "refused", 3),
        (3, "down", None),
        (4, "left", None),
        (5, "down", None),
        (6, "joining", None),
        (7, "gone", None),
        (8, "gone", None),
    ]
    assert [row["state"] for row in members(said=(NodeState(1, 5, is_draining=False, reference=""),))][1] == "up"


def test_hub_that_says_that_its_clock_is_wrong_has_that_as_its_cause() -> None:
    fault = "clock_wrong: 60 s ahead of most hubs"

    found = members(said=(NodeState(6, 0, False, "", fault), NodeState(1, 0, False, "", fault)))

    assert [row["node"] for row in found if row["cause"] == fault] == [1, 6]
