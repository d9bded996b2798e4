"""From runs to a table: medians, ranges, and ratios within a turn.

Runs nothing.
"""

# ruff: noqa: RUF001  (the tables are made for people, with typographic signs)

from __future__ import annotations

import statistics

from measures import COLUMNS, dig, kind


def summary(workload: str, names: list[str], runs: dict[str, list[dict]]) -> list[dict]:
    """One row per broker: medians, ranges, ratios to the first broker's run of the same turn."""
    rows, base = [], runs[names[0]]
    for name in names:
        mine = runs[name]
        row = {"broker": name, "runs": len(mine), "invalid": [], "notes": [], "cells": {}}
        rows.append(row)
        if not mine:
            continue
        reasons: dict[str, int] = {}
        for r in mine:
            for reason in r["invalid"]:
                reasons[reason] = reasons.get(reason, 0) + 1
        failed = sum(bool(r["invalid"]) for r in mine)
        if failed:
            row["invalid"] = [f"{failed} of {len(mine)} runs", *reasons]
            continue
        for heading, path, factor, _, with_ratio in COLUMNS[kind(workload)]:
            values = [dig(r, path) for r in mine]
            if any(v is None for v in values):
                continue
            values = [v * factor for v in values]
            cell = {"median": statistics.median(values), "min": min(values), "max": max(values)}
            if with_ratio and name != names[0] and not any(r["invalid"] for r in base):
                others = [dig(r, path) * factor for r in base]
                if all(others):
                    pairs = [v / b for v, b in zip(values, others, strict=False)]
                    cell |= {
                        "ratio": cell["median"] / statistics.median(others),
                        "ratio_min": min(pairs),
                        "ratio_max": max(pairs),
                    }
            row["cells"][heading] = cell
        threads = mine[0].get("threads", 1)
        busiest = max(dig(r, "generator.cores") or 0 for r in mine)
        load, work = (
            statistics.median(dig(r, p) or 0 for r in mine) for p in ("generator.us_per_msg", "broker.us_per_msg")
        )
        other = [dig(r, "machine.other_cores") or 0 for r in mine]
        if kind(workload) in ("closed loop", "storm") and (busiest > 0.93 * threads or load / threads > 0.9 * work):
            row["notes"].append("generator-bound: the rate says little, compare CPU")
        if statistics.median(other) > 0.3:
            row["notes"].append(f"disturbed: others used {min(other):.1f}–{max(other):.1f} cores")
        if n := sum(r.get("redelivered", 0) for r in mine):
            row["notes"].append(f"{n} redelivered with DUP")
        if n := sum(dig(r, "errors.stalls") or 0 for r in mine):
            row["notes"].append(f"{n} stalls over 1 s")
    return rows


def table(name: str, workload: str, rows: list[dict]) -> str:
    columns = COLUMNS[kind(workload)]
    heads = ["broker", "runs"]
    for heading, *_, with_ratio in columns:
        heads += [heading + " (min–max)", "×"] if with_ratio else [heading]
    heads += ["notes"]
    out = [
        f"### {name}: `{workload}`",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "|".join("---" if h in ("broker", "notes") else "--:" for h in heads) + "|",
    ]
    for row in rows:
        if not row["runs"]:
            continue
        cells = [row["broker"], str(row["runs"])]
        for heading, _, _, fmt, with_ratio in columns:
            c = row["cells"].get(heading)
            if not c:
                cells += ["–", "–"] if with_ratio else ["–"]
                continue
            text = fmt.format(c["median"])
            if with_ratio:
                text += f" ({fmt.format(c['min'])}–{fmt.format(c['max'])})"
            cells.append(text)
            if with_ratio:
                cells.append(
                    f"{c['ratio']:.2f} ({c['ratio_min']:.2f}–{c['ratio_max']:.2f})"
                    if "ratio" in c
                    else "1"
                    if row is rows[0]
                    else "–"
                )
        note = "; ".join(row["notes"])
        if row["invalid"]:
            note = "**INVALID** " + "; ".join(row["invalid"]).replace("|", "/")
        out.append("| " + " | ".join([*cells, note]) + " |")
    if absent := [row["broker"] for row in rows if not row["runs"]]:
        out += ["", f"Not run, declared as unsupported: {', '.join(absent)}."]
    return "\n".join(out)
