"""Creating our tables by a Java program of our jar, `TableAdmin` (in `ops/hbase`), on HBase's own class path and configuration.

Knows layouts and nothing of what the tables hold. Thrift 1 can neither split a table beforehand nor give it a coprocessor.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from iothub.base.errors import BackendError, ConflictError, UnavailableError
from iothub_services.hbase.tables import FamilyLayout, TableLayout, differences, other_tables

_JAVA_CLASS = "iothub.hbase.admin.TableAdmin"
_LIMIT_S = 300.0  # of one run: 128 regions on a busy machine


class TableAdmin:
    """Our Java program. `program` runs a class of HBase's class path, as HBase's own `hbase` does."""

    def __init__(self, program: str | Path, limit_s: float = _LIMIT_S) -> None:
        self._program = str(program)
        self._limit_s = limit_s

    def create(self, wanted: Sequence[TableLayout]) -> list[str]:
        """Create the tables that are not there; return their names. Safe to repeat.

        Raises:
            ConflictError: A table is there with another layout; nothing was created.
            UnavailableError: The program cannot be run, or HBase refused.
        """
        printed = self._create(wanted)
        there = {layout.name: layout for layout in decode(printed)}
        if not there:
            return _created(printed)
        problems = [
            f"{layout.name}: {problem}"
            for layout in wanted
            if layout.name in there
            for problem in differences(layout, there[layout.name])
        ]
        if problems:
            raise ConflictError(other_tables(problems))
        missing = [layout for layout in wanted if layout.name not in there]
        return _created(self._create(missing)) if missing else []

    def _create(self, wanted: Sequence[TableLayout]) -> str:
        """Have all of them made, or get the layouts of those that are there already."""
        return self._run(["create"], encode(wanted))

    def _run(self, words: Sequence[str], given: str) -> str:
        command = [self._program, _JAVA_CLASS, *words]
        try:
            done = subprocess.run(  # noqa: S603 - the operator's own program, no shell
                command, input=given, capture_output=True, text=True, timeout=self._limit_s, check=False
            )
        except OSError as error:
            raise UnavailableError(_not_run(self._program, error)) from None
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"{self._program} {_JAVA_CLASS} did not end within {self._limit_s:g} s") from None
        if done.returncode != 0:
            raise _failed(self._program, done.stderr)
        return done.stdout


def _created(printed: str) -> list[str]:
    return [line.partition("\t")[2] for line in printed.splitlines() if line.startswith("created\t")]


def _not_run(program: str, error: OSError) -> str:
    """Say where a program was looked for, and how another one is named."""
    if os.sep not in program:
        where = (
            f"it was looked for in PATH ({os.pathsep.join(os.get_exec_path())}); install HBase's client there, or set"
        )
    elif isinstance(error, FileNotFoundError) and Path(program).exists():
        where = "the file is there, but not what its first line says that it is run by; mend it, or set"
    else:
        where = "hbase.admin_program names it; set"
    return (
        f"{program} cannot be run ({error.strerror}): {where} hbase.admin_program to the whole path of HBase's own `hbase`, "
        "or of a program that runs a Java class as that does"
    )


def _failed(program: str, said: str) -> UnavailableError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = next(
        (line for line in reversed(lines) if line.startswith("TableAdmin: ")), lines[-1] if lines else "no word why"
    )
    if _JAVA_CLASS in last:
        return UnavailableError(f"{program} does not find {_JAVA_CLASS}: put the iothub-hbase jar into HBASE_CLASSPATH")
    if "FailedSanityCheck" in said or "DoNotRetryIOException" in last:
        last += "; do the region servers and the master have the iothub-hbase jar on their class path?"
    return BackendError(f"HBase's tables: {last}", retryable=False, is_written=True)


def encode(layouts: Iterable[TableLayout]) -> str:
    """Write layouts as `TableAdmin` reads them."""
    lines: list[tuple[str, ...]] = []
    for layout in layouts:
        lines.append(("table", layout.name))
        lines += [("set", name, value) for name, value in layout.settings.items()]
        for family in layout.families:
            lines.append(("family", family.name))
            lines += [("set", name, value) for name, value in family.settings.items()]
        lines += [("split", key.hex()) for key in layout.splits]
    return "".join("\t".join(words) + "\n" for words in lines)


def decode(text: str) -> list[TableLayout]:
    """Read layouts as `TableAdmin` prints them; other lines are somebody else's and left out."""
    found: list[TableLayout] = []
    for line in text.splitlines():
        match line.split("\t"):
            case ["table", name]:
                found.append(TableLayout(name, ()))
            case ["set", name, value] if found:
                found[-1] = _with_setting(found[-1], name, value)
            case ["family", name] if found:
                found[-1] = replace(found[-1], families=(*found[-1].families, FamilyLayout(name)))
            case ["split", key] if found:
                found[-1] = replace(found[-1], splits=(*found[-1].splits, bytes.fromhex(key)))
            case _:
                continue
    return found


def _with_setting(layout: TableLayout, name: str, value: str) -> TableLayout:
    if not layout.families:
        return replace(layout, settings={**layout.settings, name: value})
    *others, last = layout.families
    changed = replace(last, settings={**last.settings, name: value})
    return replace(layout, families=(*others, changed))
