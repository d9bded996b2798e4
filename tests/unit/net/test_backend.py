"""Which twin runs."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.net.backend import require_fresh_build, require_whole_build, select_backend
from iothub.net.build_stamp import STAMP, fingerprint


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


@pytest.mark.parametrize("change", ["a.py", "a.pxd", "b.pyx", "c.pxd"])
def test_compiled_modules_that_are_older_than_their_sources_are_refused(tmp_path: Path, change: str) -> None:
    """Of whatever they are made of; what is not compiled may change, and without compiled modules there is nothing to refuse."""
    for name in ("a.py", "a.pxd", "b.pyx", "plain.py"):
        (tmp_path / name).write_text("x = 1\n")
    require_fresh_build([tmp_path])
    (tmp_path / "a.cpython-311-x86_64-linux-gnu.so").touch()
    with pytest.raises(ConfigError, match="build them anew"):
        require_fresh_build([tmp_path])  # nobody knows from what they were built
    (tmp_path / STAMP).write_text(fingerprint(tmp_path) + "\n")
    (tmp_path / "plain.py").write_text("x = 2\n")
    require_fresh_build([tmp_path])

    (tmp_path / change).write_text("x = 2\n")

    with pytest.raises(ConfigError, match="built from other sources"):
        require_fresh_build([tmp_path])


def test_build_that_lacks_a_module_is_refused_by_its_name(tmp_path: Path) -> None:
    """As the build leaves it when the compiler refuses one, in whatever package; all or nothing is whole."""
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
        for name in ("a.py", "a.pxd", "b.pyx"):
            (folder / name).touch()
    require_whole_build(folders)
    suffix = EXTENSION_SUFFIXES[0]
    for compiled in [folder / name for folder in folders for name in (f"a{suffix}", f"b{suffix}")]:
        compiled.touch()
    require_whole_build(folders)

    (folders[1] / f"b{suffix}").unlink()

    with pytest.raises(ConfigError) as raised:
        require_whole_build(folders)
    assert str(raised.value).startswith(f"{folders[1] / 'b.pyx'} is not compiled, although 3 other modules are")
    assert "IOTHUB_PURE_PYTHON=1" in str(raised.value)
    (folders[0] / f"b{suffix}").unlink()
    with pytest.raises(ConfigError, match="and 1 more is not compiled"):
        require_whole_build(folders)


def test_what_is_compiled_here_is_fresh() -> None:
    """The build says from what it was built, for every package that setup.py compiles."""
    require_fresh_build()
