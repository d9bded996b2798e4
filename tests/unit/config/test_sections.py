"""Where settings live: each module has the sections of one kind, and all of them are in `Config` and can be imported from the package."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import ModuleType

import pytest

from iothub.config import sections as settings
from iothub.config.sections import Config, hub, jobs, key, listeners, servers, stores

ROOMS = (hub, jobs, listeners, servers, stores)


def classes_of(module: ModuleType) -> dict[str, type]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    }


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_every_section_is_frozen_and_each_of_its_keys_says_what_it_is(room: ModuleType) -> None:
    sections = classes_of(room)

    assert sections
    for name, section in sections.items():
        assert is_dataclass(section), name
        assert section.__dataclass_params__.frozen, name  # type: ignore[attr-defined]
        assert getattr(settings, name) is section, f"{name} is not offered by iothub.config.sections"
        for each in fields(section):
            if (section, each.name) == (listeners.Listeners, "named"):  # its keys are those of the kinds
                continue
            assert is_dataclass(each.default_factory) or isinstance(each.metadata["key"], key.Key), each.name


def test_config_has_a_section_of_every_class_once() -> None:
    """But for what the listeners' section is made of."""
    found = [type(getattr(Config(), each.name)) for each in fields(Config)]
    offered = {section for room in ROOMS for section in classes_of(room).values()}

    assert len(set(found)) == len(found)
    assert offered - set(found) == {
        getattr(listeners, name) for name in ("Listener", "TcpListener", "TlsListener", "WsListener", "WssListener")
    }
