"""What `make bench` found, as a picture: a bar for each broker and workload, as a part of the baseline's. Runs nothing."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

from workloads import WORKLOADS

_MEASURES = {workload.name: workload.measure for workload in WORKLOADS}
_COLOURS = ("#9aa5b1", "#1f77b4", "#e6862c", "#2e9e5b", "#b04a8f", "#7a5cc7", "#c9a227")
_BAR, _GAP, _LEFT, _WIDTH, _TOP = 14, 12, 330, 560, 64


def svg(rows: list[dict[str, Any]], about: str) -> str:
    """Return the picture of the workloads whose baseline is Mosquitto; shorter is better."""
    shown = [(row, _parts(row)) for row in rows]
    shown = [(row, parts) for row, parts in shown if parts]
    names = list(dict.fromkeys(name for _, parts in shown for name, _ in parts))
    colours = {name: _COLOURS[at % len(_COLOURS)] for at, name in enumerate(names)}
    most = max((part for _, parts in shown for _, part in parts), default=1.0)
    lines, y = [], _TOP
    for row, parts in shown:
        lines.append(_text(_LEFT - 8, y + _BAR * len(parts) / 2 + 4, row["name"], anchor="end"))
        for name, part in parts:
            width = max(part / most * _WIDTH, 1.0)
            lines.append(f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR - 2}" fill="{colours[name]}"/>')
            lines.append(_text(_LEFT + width + 5, y + _BAR - 4, f"{part:.2f}"))
            y += _BAR
        y += _GAP
    legend, x = [], _LEFT
    for name in names:
        legend.append(f'<rect x="{x}" y="34" width="12" height="12" fill="{colours[name]}"/>')
        legend.append(_text(x + 17, 45, name))
        x += 30 + 7 * len(name)
    size = f'width="{_LEFT + _WIDTH + 60}" height="{y + 10}"'
    head = _text(
        10, 20, f"CPU per message or connect, memory per idle connection; Mosquitto = 1, less is better. {about}"
    )
    ground = '<rect width="100%" height="100%" fill="white"/>'
    body = "\n".join([ground, head, *legend, *lines])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n{body}\n</svg>\n'


def _parts(row: dict[str, Any]) -> list[tuple[str, float]]:
    """Return who took how much of the baseline's; nothing of what was faulty."""
    measure, baseline = _MEASURES[row["name"]], row["brokers"][0]
    cells = {part["broker"]: part["cells"].get(measure) for part in row["rows"] if not part["invalid"]}
    base = cells.get(baseline)
    if not baseline.startswith("mosquitto") or not base or not base["median"]:
        return []
    return [(_plain(name), cell["median"] / base["median"]) for name, cell in cells.items() if cell]


def _plain(name: str) -> str:
    """Return the broker's name without that of its variant, so that it has one colour."""
    known = next((each for each in ("mosquitto", "iothub") if name == each or name.startswith(f"{each}-")), name)
    return known if name.removeprefix(f"{known}-") in {known, "few", "few-chosen", "few-open", "ws", "tls"} else name


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'
