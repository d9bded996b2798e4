"""Which twin runs: the compiled poller or the plain one. The one place that looks.

Knows neither twin's inside. `IOTHUB_PURE_PYTHON=1` forces the plain one, `IOTHUB_REQUIRE_COMPILED=1` refuses to start
without the compiled one. Compiled modules that are older than their sources are refused: they would fail late, or do what nobody wrote.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from iothub.base.errors import ConfigError
from iothub.net.build_stamp import built_and_not, is_stale

Backend = Literal["compiled", "plain"]

POLLER = "iothub.engine.poller"
COMPILED = (
    "iothub.engine",
    "iothub.peers",
    "iothub_services",
    "iothub_services.hbase",
    "iothub_services.queues",
    "iothub_services.queues.hbase",
    "iothub_services.queues.journal",
    "iothub_services.queues.redis",
    "iothub_services.queues.remote",
    "iothub_services.queues.sqlite",
    "iothub_services.quota",
    "iothub_services.retained",
    "iothub_tenants.broker",
    "iothub_tenants.control",
)
"""The packages with compiled modules."""


def select_backend(environ: Mapping[str, str] = os.environ, *, is_built: bool | None = None) -> Backend:
    """Choose the twin.

    Raises:
        ConfigError: the compiled one is demanded and not there, or both are demanded.
    """
    is_pure = is_pure_python(environ)
    is_required = environ.get("IOTHUB_REQUIRE_COMPILED", "") == "1"
    if is_pure and is_required:
        raise ConfigError("IOTHUB_PURE_PYTHON=1 and IOTHUB_REQUIRE_COMPILED=1 exclude each other; unset one of them")
    if is_pure:
        return "plain"
    if is_compiled_built() if is_built is None else is_built:
        return "compiled"
    if is_required:
        raise ConfigError(
            "IOTHUB_REQUIRE_COMPILED=1, but the compiled message plane is not there; "
            "install a C compiler and run `python setup.py build_ext --inplace`"
        )
    return "plain"


def is_pure_python(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the plain twin is forced."""
    return environ.get("IOTHUB_PURE_PYTHON", "") == "1"


def is_compiled_built() -> bool:
    return importlib.util.find_spec(POLLER) is not None


def require_fresh_build(folders: Iterable[Path] | None = None) -> None:
    """Look whether what is compiled was built from the sources beside it.

    Raises:
        ConfigError: it was not.
    """
    for folder in _compiled_folders() if folders is None else folders:
        if is_stale(folder):
            raise ConfigError(
                f"the compiled modules in {folder} were built from other sources than those beside them; "
                "build them anew (`make install`, or `python setup.py build_ext --inplace`), or set IOTHUB_PURE_PYTHON=1 for the plain twin"
            )


def require_whole_build(folders: Iterable[Path] | None = None) -> None:
    """Look whether all is compiled, or nothing: a build goes on when the compiler refuses a module, and the others need it.

    Raises:
        ConfigError: some modules are compiled and others are not.
    """
    built: list[Path] = []
    missing: list[Path] = []
    for folder in _compiled_folders() if folders is None else folders:
        of_folder = built_and_not(folder)
        built += of_folder[0]
        missing += of_folder[1]
    if built and missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ConfigError(
            f"{missing[0]}{more} is not compiled, although {len(built)} other modules are: its build has failed, or its compiled file was removed; "
            "build all anew and read what the compiler says (`make install`, or `python setup.py build_ext --inplace`), "
            "or set IOTHUB_PURE_PYTHON=1 for the plain twin, which is slower"
        )


def _compiled_folders() -> Iterable[Path]:
    for name in COMPILED:
        spec = importlib.util.find_spec(name)
        yield from (Path(folder) for folder in (spec and spec.submodule_search_locations) or ())
