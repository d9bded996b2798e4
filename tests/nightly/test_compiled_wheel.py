"""The wheel of a machine with a compiler has every compiled module of the engine."""

from __future__ import annotations

import pytest

from tests.architecture.tree import ROOT
from tests.support.wheel import build


@pytest.mark.timeout(1500)
def test_wheel_contains_every_compiled_module(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A wheel without them would be the plain twin in disguise."""
    engine = ROOT / "iothub/engine"
    typed = {path.stem for path in engine.glob("*.pxd") if path.with_suffix(".py").exists()}
    expected = typed | {path.stem for path in engine.glob("*.pyx")}

    names = build(tmp_path_factory.mktemp("wheel"), is_compiled=True)

    compiled = {
        name.split("/")[-1].partition(".")[0]
        for name in names
        if name.startswith("iothub/engine/") and name.endswith(".so")
    }
    assert compiled == expected
    assert {name.partition("/")[0] for name in names if not name.startswith("iothub")} == set()
