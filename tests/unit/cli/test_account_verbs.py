"""Verbs made from a function of the accounts: with arguments, help and examples like any other."""

from __future__ import annotations

from dataclasses import dataclass

import click
import pytest

from iothub.cli import account_verbs, main
from iothub.cli.app import noun
from tests.support.in_process.command import Cli


@dataclass(frozen=True)
class Thing:
    name: str
    tenant: str


@pytest.fixture
def things(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A noun `thing` in the place of `version`; returns what was done."""
    done: list[str] = []

    def rename(_store: object, tenant: str, name: str, to: str) -> Thing:
        done.append(f"{tenant}/{name} -> {to}")
        return Thing(to, tenant)

    group = noun("thing", "Things.")
    text = "Do it.\n\n    Example:\n      iothub thing list acme\n    "
    account_verbs.add_list(group, lambda _store, tenant: [Thing("t1", tenant)], ("name",), text)
    account_verbs.add_show(group, lambda _store, tenant, name: Thing(name, tenant), text)
    account_verbs.add_change(group, "rename tenant name to", rename, "{tenant}/{name} is {to}", text)
    monkeypatch.setattr(main.Nouns, "get_command", lambda _self, _context, _name: group)
    return done


def test_records_are_listed_and_shown(acme: Cli, things: list[str]) -> None:
    assert acme("thing", "list", "acme").out == "NAME\nt1\n"
    assert acme.rows("thing", "list", "acme") == [{"name": "t1", "tenant": "acme"}]
    assert acme("thing", "show", "acme", "t2", "-o", "json").json == {"name": "t2", "tenant": "acme"}


def test_change_takes_its_arguments_in_order_and_is_confirmed(acme: Cli, things: list[str]) -> None:
    assert acme("thing", "rename", "acme", "t1", "t2").err == "acme/t1 is t2\n"
    assert acme("thing", "rename", "acme", "t1", "t3", "-o", "json").json["name"] == "t3"
    assert things == ["acme/t1 -> t2", "acme/t1 -> t3"]


def test_help_has_the_text_with_its_example(acme: Cli, things: list[str]) -> None:
    shown = click.unstyle(acme("thing", "rename", "--help").out)

    assert "TENANT NAME TO" in shown
    assert "Example:\n    iothub thing list acme\n" in shown
