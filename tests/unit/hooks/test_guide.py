"""The example of docs/guide/hooks.md, run as it is printed there."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from iothub import hooks
from iothub.hooks import Client, Hooks, Publication

GUIDE = Path(__file__).parents[3] / "docs/guide/hooks.md"


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    text = GUIDE.read_text(encoding="utf-8")
    project = tomllib.loads(_block(text, "toml"))
    (tmp_path / "house_rules.py").write_text(_block(text, "python"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    points = project["project"]["entry-points"][hooks.GROUP]
    yield hooks.load([EntryPoint(name, value, hooks.GROUP) for name, value in points.items()])
    sys.modules.pop("house_rules", None)


def _block(text: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def test_example_lets_guests_only_read(loaded: Hooks) -> None:
    assert loaded.authorise is not None
    guest, device = Client("acme", "guest-1", "c1"), Client("acme", "dev1", "c2")

    assert loaded.authorise(guest, "publish", "a") is False
    assert loaded.authorise(guest, "receive", "a") is None
    assert loaded.authorise(device, "publish", "a") is None


def test_example_blanks_card_numbers(loaded: Hooks) -> None:
    assert loaded.publish is not None
    client = Client("acme", "dev1", "c1")

    blanked = loaded.publish(client, Publication("pay", b"4111 1111 1111 1111", 1))
    other = loaded.publish(client, Publication("pay", b"21.5", 1))

    assert blanked == Publication("pay", b"****", 1)
    assert other == Publication("pay", b"21.5", 1)


def test_example_leaves_the_other_places_empty(loaded: Hooks) -> None:
    assert (loaded.authenticate, loaded.deliver, loaded.lifecycle) == (None, None, None)
