"""The reference page of all limits: names from `names`, reactions from `reactions`, and what a table cannot say.

Knows no figures in use. A test holds `docs/reference/quotas.md` equal to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from iothub_services.quota.names import Kind, Quota, Unit
from iothub_services.quota.reactions import HITS, Hit, markdown_table

_INTRODUCTION = """\
# Quotas

This page is generated from `services/iothub_services/quota`: `.venv/bin/python docs/reference/generate.py`.

A limit is looked for with the device, then with its tenant, then in the tenant's plan; the first that says something counts, name by name.
A name that nobody sets is unlimited. `iothub quota explain TENANT [NAME] [--device DEVICE]` says what is in force and who said so.

```text
name=value[/window][,value/window]...      connections=100 publish_messages=500/1s,10000000/1d publish_bytes=1MiB/1s
name=unlimited                             lifts the limit of the layers below
dry-run:name=value[/window]                only reports; may stand beside an obeyed limit of the same name
```

Units: plain numbers, `KiB MiB GiB` for bytes, `s m h d` for seconds and windows. A running hub obeys a change within a second.
"""

_KINDS = """\
## How they are counted

- A **count** is reserved and given back, exactly. A count of 0 allows none. A lowered count takes nothing away: whoever is connected stays
  connected, what is stored stays stored, and nothing new is let in until it fits.
- A **rate** below an hour holds back or refuses (table below). Up to `10s` it is smooth: within 5 % over any ten seconds, without a burst
  at the beginning. Above, it is a budget: all of it at once if you like, and then no more within the window, also for a tenant whose
  last client has gone meanwhile; only a restart of the hub forgets it.
- From `1h` on a window follows the calendar in UTC (`7d` from Monday, `30d` is the month), and what was used survives a kill.
  What is refused by one window uses up nothing of another one.
- A **bound** is compared with one packet, message or session; nothing is kept. `dry-run:` is for counts and rates alone.
"""

_NOTES = """\
## What the table cannot say

- `connections`: a client that takes over its own session needs no second place.
- `sessions` counts sessions that outlive their connection. `session_expiry_s` and `keep_alive_min_s` adjust what a client asks for; 5.0
  clients are told in CONNACK. They, `receive_maximum` and `topic_aliases` are agreed at CONNECT: a change holds from the next CONNECT on.
- `connects` and `subscribes` refuse at once. The publish rates and `persistent_fanout` stop reading the publisher, for ten seconds at
  most; a message that would have to wait longer is refused at once.
- A CONNECT is held to `packet_bytes`, `user_properties`, and its Will to `will_bytes`, `topic_levels` and `topic_bytes`: the refusal is a
  CONNACK with the code of the table, in 3.x the connection closes without one.
- It is read before its tenant is known, so it has two ceilings that no plan lifts, `unlimited` neither: 1,024 User Properties, and as many
  in its Will (0x97), and 256 bytes of Client Identifier (0x85, in 3.x 2). The log says `CONNECT refused` with the limit as its `cause`.
- `receive_maximum` in 3.x: a client cannot know it, so it is never closed for it. So many of its messages may wait for their PUBACK or
  PUBREC; until one of them is answered the client is not read.
- Overload: a CONNECT that is read is answered. Above `overload.memory_limit` that is the first 256 at a time at each listener; the others,
  and those beyond `max_connections`, `max_handshakes` or a full `overload.buffered_bytes`, are closed at once without a CONNACK.
- `topic_levels` and `filter_levels` have a ceiling that no plan lifts: 1,024, which is what `unlimited` means there.
- `filter_levels` counts what follows `$share/{group}/`, `topic_bytes` counts all of a Topic Filter.
- `fanout` and `fanout_bytes`: the deliveries above it are dropped; the publisher's acknowledgement says nothing of it.
- The deliver rates refuse nothing: what is too much waits in the session's backlog, and is dropped only when that is full.
- Queues: what goes first is the setting `queues.overflow`. A 5.0 publisher gets 0x97 only if every queue refused and nobody got the message
  otherwise. A calendar window of `persistent_fanout` refuses what would be stored; QoS 0 passes.
- `retained_bytes` counts what is stored, topic and a head of some 40 bytes included.
- `api_requests` waits for the API of a later version: nothing asks for it yet.
- Every refusal is counted in `iothub_tenant_quota_rejections_total{tenant,quota}`, what a `dry-run:` would have refused in
  `iothub_tenant_quota_trials_total{tenant,quota}`.
"""

_KIND_WORDS = {Kind.COUNT: "count", Kind.RATE: "rate", Kind.BOUND: "bound"}


def render_reference() -> str:
    """Return the page in Markdown."""
    parts = [
        _INTRODUCTION,
        "## Names\n",
        "\n".join(_names()) + "\n",
        _KINDS,
        "## What a limit does\n",
        markdown_table(),
        _NOTES,
    ]
    return "\n".join(parts)


def _names() -> Iterator[str]:
    yield "| name | kind | counted per | for one device | plan `standard` | limits | when it is hit |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for quota in Quota:
        unit = "" if quota.unit is Unit.ITEMS or quota.unit.value in quota.doc else f" ({quota.unit.value})"
        own = "yes" if quota.is_for_devices else ""
        cells = (
            f"`{quota.value}`",
            _KIND_WORDS[quota.kind],
            quota.scope.value,
            own,
            quota.standard or "",
            quota.doc + unit,
            _hit(quota),
        )
        yield f"| {' | '.join(cells)} |"


def _hit(quota: Quota) -> str:
    is_inbound = HITS[quota] is Hit.INBOUND_RATE
    return f"{HITS[quota].value}; from `1h` on: {Hit.INBOUND_WINDOW.value}" if is_inbound else HITS[quota].value
