"""The wheel of a machine with a compiler has every compiled module."""

from __future__ import annotations

import pytest

from tests.architecture.tree import compiled_folders
from tests.support.wheel import build


@pytest.mark.timeout(1500)
def test_wheel_contains_every_compiled_module(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A wheel without them would be the plain twin in disguise."""
    expected = set()
    for name, folder in compiled_folders().items():
        typed = {path.stem for path in folder.glob("*.pxd") if path.with_suffix(".py").exists()}
        stems = typed | {path.stem for path in folder.glob("*.pyx")}
        expected |= {f"{name.replace('.', '/')}/{stem}" for stem in stems}

    names = build(tmp_path_factory.mktemp("wheel"), is_compiled=True)

    compiled = {name.partition(".")[0] for name in names if name.endswith(".so")}
    assert compiled == expected
    assert {name.partition("/")[0] for name in names if not name.startswith("iothub")} == set()
