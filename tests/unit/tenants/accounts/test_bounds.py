"""The bounds of a SQL server come from the settings."""

from __future__ import annotations

from iothub.config.sections import Sql
from iothub_tenants.accounts.bounds import SqlBounds, bounds_of


def test_settings_have_the_bounds_defaults() -> None:
    """A command without a configuration behaves as one with an empty one."""
    assert bounds_of(Sql()) == SqlBounds()


def test_socket_is_given_up_after_the_statement() -> None:
    """So that the server's own words come first."""
    assert SqlBounds(timeout_s=3).socket_s > 3


def test_somebody_in_a_hurry_waits_no_longer() -> None:
    """And nobody waits longer than the settings say."""
    bounds = SqlBounds(connect_timeout_s=1, timeout_s=5).within(2)

    assert (bounds.connect_timeout_s, bounds.timeout_s) == (1, 2)
