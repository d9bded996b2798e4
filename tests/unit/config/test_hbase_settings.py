"""Settings that choose HBase: what must be given with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.config.loader import load, needs_on_hbase
from iothub.config.sections import Config
from iothub.config.sections.stores import driver_of
from ops.services.hub_settings import hub_settings
from ops.services.places import Ports


def loaded(*flags: str) -> Config:
    return load(file=None, environment={}, flags=flags).config


def test_removed_value_is_refused_with_what_replaces_it() -> None:
    with pytest.raises(ConfigError, match=r"redis or sqlite$"):  # no word of what was expected or given
        loaded("queues.driver=hbase-plain")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("queues.driver=hbase",), 'queues.driver = "hbase" needs hbase.thrift, the gateways of HBase'),
        (
            ("queues.driver=hbase-plain",),
            "hbase-plain was removed: use hbase (with the iothub-hbase jar on the region servers), redis or sqlite",
        ),
        (("state.driver=hbase",), 'state.driver = "hbase" needs hbase.thrift'),
        (("retained.driver=hbase",), 'retained.driver = "hbase" needs hbase.thrift'),
        (("queues.driver=memory",), "expected one of sqlite, hbase, redis"),
        (("retained.driver=hbase-plain",), "expected one of sqlite, hbase"),
    ],
)
def test_settings_that_do_not_fit_are_refused(flags: tuple[str, ...], expected: str) -> None:
    """With the setting that asks for the other one."""
    with pytest.raises(ConfigError) as caught:
        loaded(*flags)

    assert expected in str(caught.value)


def test_nothing_is_on_hbase_without_a_setting() -> None:
    assert needs_on_hbase(loaded("hbase.thrift=one:9090")) == []


def test_settings_of_the_real_servers_are_accepted(tmp_path: Path) -> None:
    """As `make services` writes them: every store on a server."""
    file = tmp_path / "iothub.toml"
    file.write_text(hub_settings(Ports()))

    config = load(file=file, environment={}, flags=()).config

    assert needs_on_hbase(config) == [
        ("queues.driver", "hbase"),
        ("state.driver", "hbase"),
        ("retained.driver", "hbase"),
    ]
    assert config.events.driver == "kafka"


def test_driver_is_chosen_by_tenant() -> None:
    """The first table that fits counts, then `queues.driver`."""
    choices = '{driver = "hbase", tenants = ["acme"]}, {driver = "sqlite", tenants = ["acme", "beta"]}'
    hbase = "hbase.thrift=one:9090"
    some = loaded(f"queues.choices=[{choices}]", hbase).queues
    every = loaded(f'queues.choices=[{choices}, {{driver = "hbase"}}]', hbase).queues

    assert [driver_of(some, tenant) for tenant in ("acme", "beta", "other")] == ["hbase", "sqlite", "sqlite"]
    assert driver_of(every, "other") == "hbase"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{tenants = ["acme"]}]', "in table 1: expected driver to be one of sqlite, hbase, redis"),
        ('[{driver = "hbase"}, {driver = "bogus"}]', "in table 2: expected driver to be one of"),
        ('[{driver = "hbase", tenant = "acme"}]', "expected driver and tenants, not 'tenant'"),
        ('[{driver = "hbase", expires_within = "1h"}]', "expires_within was removed"),
        (
            '[{driver = "sqlite", tenants = ["a1"]}, {driver = "hbase", tenants = ["acme"]}]',
            'in table 2: driver = "hbase" needs hbase.thrift',
        ),
        ("hbase", "expected tables such as [[queues.choices]]"),
    ],
)
def test_choices_that_cannot_be_read_are_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(f"queues.choices={text}")

    assert expected in str(caught.value)


def test_choices_are_written_as_they_are_read() -> None:
    """What `iothub config show` prints can be pasted."""
    text = '[{driver = "sqlite", tenants = ["a1", "b2"]}, {driver = "sqlite"}]'

    file = load(file=None, environment={}, flags=(f"queues.choices={text}",))

    assert {name: value for name, value, _ in file.values()}["queues.choices"] == text
