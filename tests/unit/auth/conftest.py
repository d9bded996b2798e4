"""Secrets are hashed here as the hub hashes them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quick_passwords() -> None:
    """Take the place of the one above: nothing is quicker here."""
