"""`iothub cluster`: the authority, certificates of nodes, and what the running hub says of the others."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from iothub.peers import certificates
from iothub.peers.link_files import LinkFiles
from iothub.records.admin_commands import Json, Request, Verb
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli


def files_in(directory: Path) -> LinkFiles:
    return LinkFiles(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")


def member(node: int, state: str, **other: object) -> Json:
    return {
        "node": node,
        "name": f"hub-{node}",
        "address": f"hub-{node}:7883",
        "version": "1.0",
        "state": state,
        "is_self": node == 1,
        "clients": 0,
        "round_trip_ms": None,
        "unacknowledged_bytes": None,
        "cause": "",
        **other,
    }


def test_authority_and_certificate_are_made_where_the_hub_looks_for_them(acme: Cli) -> None:
    """Two commands, and a hub with this node number can start its links; keys are the owner's alone."""
    acme("cluster", "init-ca")
    acme("cluster", "issue", "0")

    directory = acme.data_dir / "cluster"
    certificates.load(files_in(directory), 0)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes == {"ca.pem": 0o644, "ca-key.pem": 0o600, "cert.pem": 0o644, "key.pem": 0o600}


def test_certificate_of_another_node_goes_to_a_directory_of_its_own(acme: Cli, tmp_path: Path) -> None:
    """With everything that is copied to that hub, and nothing more."""
    acme("cluster", "init-ca", str(tmp_path / "authority"))
    acme(
        "cluster",
        "issue",
        "7",
        "--ca",
        str(tmp_path / "authority"),
        "--out",
        str(tmp_path / "7"),
        "--host",
        "a.example",
        "--host",
        "192.0.2.1",
    )

    certificates.load(files_in(tmp_path / "7"), 7)
    assert sorted(path.name for path in (tmp_path / "7").iterdir()) == ["ca.pem", "cert.pem", "key.pem"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("issue", "0"), 2, "cluster init-ca` makes the authority, --ca names its directory"),
        (("issue", "3"), 2, "this hub is node 0: for node 3 name a directory with --out"),
        (("issue", "65536", "--out", "x"), 2, "65536"),
    ],
    ids=["no authority", "another node", "no node"],
)
def test_issue_says_what_is_missing(acme: Cli, arguments: tuple[str, ...], code: int, text: str) -> None:
    failed = acme("cluster", *arguments, code=code)

    assert text in failed.err


def test_issue_refuses_what_is_no_host(acme: Cli) -> None:
    acme("cluster", "init-ca")

    failed = acme("cluster", "issue", "0", "--host", "a b", code=2)

    assert "--host 'a b': expected a host name or an address" in failed.err


def test_existing_files_are_replaced_with_force_alone(acme: Cli) -> None:
    """A new authority would part the hub from the others: nothing is written without the option."""
    acme("cluster", "init-ca")
    acme("cluster", "issue", "0")
    before = {path: path.read_bytes() for path in (acme.data_dir / "cluster").iterdir()}

    acme("cluster", "init-ca", code=4)
    acme("cluster", "issue", "0", code=4)
    assert {path: path.read_bytes() for path in before} == before

    acme("cluster", "issue", "0", "--force", "--days", "1")
    changed = {path.name for path, content in before.items() if path.read_bytes() != content}
    assert changed == {"cert.pem", "key.pem"}


def test_nodes_are_the_hubs_without_their_links(acme: Cli) -> None:
    members = [member(1, "up", clients=3), member(2, "down", cause="no route", round_trip_ms=0.4)]
    with AnsweringHub(acme.data_dir, lambda _request: (members, {})):
        rows = acme.rows("cluster", "nodes")

    assert [list(row) for row in rows] == [["node", "name", "address", "version", "state", "clients"]] * 2
    assert [(row["node"], row["state"], row["clients"]) for row in rows] == [(1, "up", 3), (2, "down", 0)]


def test_status_lists_the_hubs_of_the_accounts(acme: Cli) -> None:
    """As the running hub sees them."""
    members = [
        member(1, "up"),
        member(2, "refused", cause="wrong_certificate: for node 3"),
        member(3, "up", round_trip_ms=0.4, unacknowledged_bytes=12),
    ]
    with AnsweringHub(acme.data_dir, lambda _request: (members, {})) as running:
        rows = acme.rows("cluster", "status")
        table = acme("cluster", "status").out

    assert running.requests[0] == Request(Verb.CLUSTER_STATUS, "", {})
    assert [(row["node"], row["state"]) for row in rows] == [(1, "up"), (2, "refused"), (3, "up")]
    assert rows[2]["unacknowledged_bytes"] == 12
    assert "wrong_certificate: for node 3" in table


def drained(left: int, closed: int) -> Json:
    return {"node": 2, "name": "two", "clients": left, "closed": closed}


def test_drain_names_the_hub_and_how_many_have_gone(acme: Cli) -> None:
    """It waits with its progress, or says how many are left."""
    with AnsweringHub(acme.data_dir, lambda _request: ([{"node": 2, "done": 1, "total": 3}], drained(0, 3))) as running:
        said = acme("cluster", "drain", "2", "--rate", "7/s").err
        record = acme.rows("cluster", "drain", "--self")
    with AnsweringHub(acme.data_dir, lambda _request: ([], drained(1, 2))) as other:
        left = acme("cluster", "drain", "2", "--no-wait", "--rate", "9").err

    assert "hub two (2) is drained: 3 clients asked to go, none is left; it may be stopped" in said
    assert record == drained(0, 3)
    assert running.requests == [
        Request(Verb.CLUSTER_DRAIN, "", {"node": 2, "rate_per_s": 7, "is_waited": True}),
        Request(Verb.CLUSTER_DRAIN, "", {"node": None, "rate_per_s": 500, "is_waited": True}),
    ]
    assert "hub two (2) is draining: 1 client left; " in left
    assert other.requests == [Request(Verb.CLUSTER_DRAIN, "", {"node": 2, "rate_per_s": 9, "is_waited": False})]


def test_resume_says_whether_anything_has_changed(acme: Cli) -> None:
    for was_draining, text in ((True, "hub two (2) lets clients in again"), (False, "hub two (2) was not draining; ")):
        answer = {"node": 2, "name": "two", "was_draining": was_draining}
        with AnsweringHub(acme.data_dir, lambda _request, answer=answer: ([], answer)) as running:
            assert text in acme("cluster", "resume", "2").err
            assert acme.rows("cluster", "resume", "--self") == answer
        assert [request.argument for request in running.requests] == [{"node": 2}, {"node": None}]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("drain",), "expected one hub: iothub cluster drain NODE, or --self"),
        (("drain", "2", "--self"), "expected one hub: iothub cluster drain NODE, or --self"),
        (("resume",), "expected one hub: iothub cluster resume NODE, or --self"),
        (("drain", "two"), "'two': expected a whole number from 0 to 65535"),
        (("drain", "70000"), "'70000': expected a whole number from 0 to 65535"),
        (("drain", "2", "--rate", "0/s"), "'0/s': expected clients per second"),
        (("drain", "2", "--rate", "5/m"), "'5/m': expected clients per second"),
        (("drain", "2", "--rate", "1000001"), "'1000001': expected clients per second"),
    ],
)
def test_drain_refuses_what_names_no_hub_or_no_rate(acme: Cli, arguments: tuple[str, ...], text: str) -> None:
    assert text in acme("cluster", *arguments, code=2).err


def test_drain_without_a_hub_says_that_none_runs(acme: Cli) -> None:
    assert "no hub runs in" in acme("cluster", "drain", "--self", code=7).err


@pytest.mark.parametrize(
    ("was_gone", "has_left", "text"),
    [
        (False, False, "hub two (2) is evicted: the other hubs go on without it in 4.5 s"),
        (True, False, "hub two (2) is gone already: its alarm is cleared"),
        (True, True, "hub two (2) was stopped, and the others go on without it; nothing was changed"),
    ],
)
def test_evict_says_what_was_done(acme: Cli, was_gone: bool, has_left: bool, text: str) -> None:
    answer = {"node": 2, "name": "two", "was_gone": was_gone, "has_left": has_left}
    with AnsweringHub(acme.data_dir, lambda _request: ([], answer)) as running:
        assert text in acme("cluster", "evict", "2", "--yes").err
        record = acme.rows("cluster", "evict", "2", "--yes")
    assert record == {"node": 2, "name": "two", "was_gone": was_gone, "is_evicted": not has_left}
    assert [request.argument for request in running.requests] == [{"node": 2}, {"node": 2}]


def test_evict_shows_whom_without_doing_it(acme: Cli) -> None:
    with AnsweringHub(acme.data_dir, lambda _request: ([member(2, "down")], {})) as running:
        assert "would evict hub " in acme("cluster", "evict", "2", "--dry-run").err
        assert "there is no hub 9" in acme("cluster", "evict", "9", "--dry-run", code=3).err
    assert {request.verb for request in running.requests} == {Verb.CLUSTER_STATUS}


def test_evict_wants_a_yes(acme: Cli) -> None:
    assert "--yes" in acme("cluster", "evict", "2", code=2).err
