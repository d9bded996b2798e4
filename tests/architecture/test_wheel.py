"""The wheel: our packages and nothing else. Its compiled modules are looked at in tests/nightly, where compiling has the time."""

from __future__ import annotations

import pytest

from tests.architecture.tree import listed
from tests.support.wheel import build


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a machine without Cython would build; it must work there too."""
    return build(tmp_path_factory.mktemp("wheel"), is_compiled=False)


def test_wheel_contains_only_our_packages(names: list[str]) -> None:
    """No `tests`, no `ops`, no stray top-level module."""
    tops = {name.partition("/")[0] for name in names}

    assert {top for top in tops if not top.startswith("iothub")} == set()


def test_wheel_contains_every_package(names: list[str]) -> None:
    """What setup.cfg names has arrived."""
    packages = listed("options", "packages")

    assert [name for name in packages if f"{name.replace('.', '/')}/__init__.py" not in names] == []


def test_wheel_contains_what_is_no_python(names: list[str]) -> None:
    """The typed marker, the engine's declarations, the migrations' template, and the migrations."""
    assert "iothub/py.typed" in names
    assert "iothub/engine/router.pxd" in names
    assert "iothub_migrations/script.py.mako" in names
    assert [name for name in names if name.startswith("iothub_migrations/versions/v0001")]


def test_wheel_has_the_command(names: list[str]) -> None:
    """Installing it gives the `iothub` command."""
    assert [name for name in names if name.endswith(".dist-info/entry_points.txt")]
