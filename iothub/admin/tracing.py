"""A trace out of what each hub has of it: the list, and its lines in the order of their times.

Knows no transport and no file.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iothub.admin.content import time_of
from iothub.admin.hub_rows import AnyJson, Row
from iothub.records.admin_commands import Shown

LINES = 500  # of one hub, in one request
Ask = Callable[[Row], tuple[Sequence[AnyJson], Mapping[str, Any]]]
"""Ask every hub for the lines that follow: TRACE_READ."""


def new_id() -> str:
    return f"t-{secrets.token_hex(8)}"


def offsets_of(text: str) -> dict[str, int]:
    """Read how far a trace was read at each hub, as `text_of` writes it."""
    return {node: int(offset) for node, _, offset in (part.partition("-") for part in text.split(",") if part)}


def text_of(offsets: Mapping[str, int]) -> str:
    """Write how far a trace was read at each hub: such as `0-512,1-88`."""
    return ",".join(f"{node}-{offset}" for node, offset in sorted(offsets.items()))


def traces_of(reported: Sequence[AnyJson]) -> list[Row]:
    """Return the traces by start, each with the hubs that have a part of it."""
    if any(isinstance(row, Shown) for row in reported):
        return [dict(row) for row in reported]
    by_id: dict[str, list[AnyJson]] = {}
    for row in reported:
        by_id.setdefault(row["id"], []).append(row)
    return [
        _one(parts) for parts in sorted(by_id.values(), key=lambda parts: (parts[0]["started_at_ms"], parts[0]["id"]))
    ]


def _one(parts: list[AnyJson]) -> Row:
    first = min(parts, key=lambda part: part["started_at_ms"])
    is_active = any(not part["ended"] for part in parts)
    return {
        "name": first["id"],
        "kind": first["kind"],
        "value": first["value"],
        "state": "active" if is_active else "ended",
        "ended": None if is_active else ", ".join(sorted({str(part["ended"]) for part in parts})),
        "started": time_of(first["started_at_ms"]),
        "kept_until": None if is_active else time_of(max(part["until_ms"] for part in parts)),
        "for_s": first["for_s"],
        "max_bytes": first["max_bytes"],
        "payload_bytes": first["payload_bytes_most"],
        "bytes": sum(part["bytes"] for part in parts),
        "nodes": sorted(part["node"] for part in parts),
    }


@dataclass(slots=True)
class Cursor:
    """How far a trace was read at each hub. Invariant: every line comes once; those of one page are in the order of their times."""

    offsets: dict[str, int] = field(default_factory=dict)
    is_active: bool = True  # as of the last page
    is_more: bool = True

    def page(self, trace_id: str, ask: Ask, lines: int = LINES) -> list[dict[str, Any]]:
        """Return the lines that follow, at most `lines` of each hub. What a hub has more of holds back what others say of later."""
        reported, result = ask({"id": trace_id, "offsets": dict(self.offsets), "lines": lines})
        if "next" in result:  # an API has put the lines of all hubs in order
            self.offsets, self.is_active, self.is_more = offsets_of(result["next"]), result["active"], bool(reported)
            return [dict(row) for row in reported]
        by_node: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        for row in reported:
            by_node.setdefault(row["node"], []).append((row["offset"], json.loads(row["line"])))
        full = [found[-1][1]["at_ms"] for found in by_node.values() if len(found) >= lines]
        until = min(full, default=None)
        page: list[dict[str, Any]] = []
        for node, found in by_node.items():
            for offset, line in found:
                if until is None or line["at_ms"] <= until:
                    page.append(line)
                    self.offsets[str(node)] = offset
        self.is_active = bool(result.get("active"))
        self.is_more = bool(by_node)
        return sorted(page, key=lambda line: line["at_ms"])

    def all(self, trace_id: str, ask: Ask) -> Iterator[dict[str, Any]]:
        """Yield every line that is there."""
        while self.is_more:
            yield from self.page(trace_id, ask)
