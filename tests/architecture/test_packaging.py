"""What the distribution contains is what the tree contains."""

from __future__ import annotations

import subprocess

from tests.architecture.tree import COMPILED, ROOT, compiled_folders, listed, modules, package_dirs, setup


def test_packages_of_setup_cfg_are_those_of_the_tree() -> None:
    """A package that is forgotten in setup.cfg works in the checkout and is missing in the wheel."""
    in_tree = {name for name, path in modules().items() if path.name == "__init__.py"}

    assert sorted(listed("options", "packages")) == sorted(in_tree)


def test_each_role_folder_holds_one_prefixed_package() -> None:
    """A top-level package named `services` would collide with somebody else's."""
    for top, folder in package_dirs().items():
        assert top == "iothub" or top.startswith("iothub_")
        assert (folder / "__init__.py").is_file()
        if folder.parent != ROOT:
            packages = [path.name for path in folder.parent.iterdir() if (path / "__init__.py").is_file()]
            assert packages == [top]


def test_the_extras_of_the_issue_are_declared() -> None:
    """Scripts may install `iothub[kafka]` today."""
    extras = set(setup()["options.extras_require"])

    assert extras >= {"admin", "redis", "kafka", "hbase", "mysql", "postgresql", "spark", "dev"}


def test_typed_marker_and_extension_declarations_are_shipped() -> None:
    """Package data are listed where setuptools looks for them."""
    data = setup()["options.package_data"]

    assert data["iothub"] == "py.typed"
    assert {name for name, value in data.items() if "*.pxd" in value} == set(COMPILED)
    assert "*.mako" in data["iothub_migrations"]
    assert list((ROOT / "iothub").glob("py.typed"))
    assert list((ROOT / "migrations/iothub_migrations").glob("*.mako"))


def test_make_install_compiles_again_when_any_compiled_package_has_changed() -> None:
    """A folder that the Makefile does not know stays as it was built, and a hub refuses to start on it."""
    words = ["make", "--no-print-directory", "--eval", "known: ; @echo $(COMPILED)", "known"]
    known = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()

    assert {ROOT / folder for folder in known} == set(compiled_folders().values())
