"""Which twin runs."""

from __future__ import annotations

import pytest

from iothub.errors import ConfigError
from iothub.net.backend import select_backend


def test_backend_is_the_compiled_one_when_it_is_there() -> None:
    """And the plain one when it is not, or when it is forced."""
    assert select_backend({}, is_built=True) == "compiled"
    assert select_backend({}, is_built=False) == "plain"
    assert select_backend({"IOTHUB_PURE_PYTHON": "1"}, is_built=True) == "plain"
    assert select_backend({"IOTHUB_PURE_PYTHON": "0"}, is_built=True) == "compiled"


def test_backend_that_is_required_and_missing_stops_the_start() -> None:
    """One line that says what to do."""
    with pytest.raises(ConfigError, match="build_ext"):
        select_backend({"IOTHUB_REQUIRE_COMPILED": "1"}, is_built=False)
    with pytest.raises(ConfigError, match="exclude each other"):
        select_backend({"IOTHUB_REQUIRE_COMPILED": "1", "IOTHUB_PURE_PYTHON": "1"}, is_built=True)
    assert select_backend({"IOTHUB_REQUIRE_COMPILED": "1"}, is_built=True) == "compiled"
