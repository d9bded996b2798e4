"""What a hub does for a command is in the audit log, as a change of the accounts is (`iothub.cli.audit`)."""

from __future__ import annotations

import pytest

from iothub.records.admin_commands import Json
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli

NODE: Json = {"node": 2, "name": "two", "clients": 0, "closed": 3, "was_draining": True, "was_gone": False}


@pytest.mark.parametrize(
    ("words", "answer", "line"),
    [
        ("session discard acme c1 --yes", {}, ("acme", "session", "c1", {"done": "discarded"})),
        ("queue purge acme c1 --yes", {"messages": 2}, ("acme", "queue", "c1", {"done": "purged", "messages": 2})),
        (
            "retain delete acme a/# --yes",
            {"messages": 2},
            ("acme", "retained", "a/#", {"done": "deleted", "messages": 2}),
        ),
        (
            "ban remove acme failures dev1 --from 192.0.2.7",
            {"bans": 1},
            ("acme", "failure_ban", "dev1", {"done": "lifted", "address": "192.0.2.7"}),
        ),
        ("cluster drain 2 --rate 5/s", NODE, ("", "node", "2", {"done": "drained", "rate_per_s": 5})),
        ("cluster resume 2", NODE, ("", "node", "2", {"done": "resumed"})),
        ("cluster evict 2 --yes", NODE | {"has_left": False}, ("", "node", "2", {"done": "evicted"})),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_hub_does_leaves_a_line(
    acme: Cli, words: str, answer: Json, line: tuple[str, str, str, dict[str, object]]
) -> None:
    with AnsweringHub(acme.data_dir, lambda _request: ([], answer)):
        acme(*words.split())

    row = acme.rows("audit", "list", "--limit", "1")[0]
    assert (row["tenant"], row["kind"], row["subject"], row["after"]) == line
    assert row["actor"].startswith("cli:")
