"""The reference page of all limits: names from `names`, what each limit does, and notes.

Knows no usage. A test compares `docs/reference/quotas.md` with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from iothub_services.quota.names import Kind, Quota, Unit

_INTRODUCTION = """\
# Quotas

This page is generated from `services/iothub_services/quota`: `.venv/bin/python docs/reference/generate.py`.

Each limit comes from the device, else from its tenant, else from the tenant's plan, else from the plans that this one inherits from.
A limit set nowhere is unlimited.
`iothub quota explain TENANT [NAME] [--device DEVICE]` shows what is in force and where it is set.

```text
name=value[/window][,value/window]...      connections=100 publish_messages=500/1s,10000000/1d publish_bytes=1MiB/1s
name=unlimited                             overrides the limit of the tenant or the plan
dry-run:name=value[/window]                reports only; may be set beside an enforced limit of the same name
```

Units: plain numbers, `KiB MiB GiB` for bytes, `s m h d` for seconds and windows. A running hub applies a change within a second.
"""

_KINDS = """\
## How they are counted

- A **count** is exact: usage is reserved and released. A count of 0 allows none. Lowering a count removes nothing: open connections and
  stored messages stay, and new ones are refused until usage is below the limit.
- A **rate** with a window below an hour delays or refuses (table below). Up to `10s` it is smooth: within 5 % over any ten seconds. At the
  beginning and after a pause 0.4 s' worth of it passes at once: of `50/1s` at most 70 in that second, then 50 in each.
  Above `10s` it is a budget: it may be used at once, then nothing more is allowed within the window, even if the tenant's
  last client disconnects meanwhile. A restart of the hub resets it.
- From `1h` on, a window follows the calendar in UTC (`7d` starts on Monday, `30d` is the month), and its usage survives a kill of the hub.
  A request that one window refuses does not count in the others.
- A **bound** is compared with one packet, message or session; nothing is counted. `dry-run:` works for counts and rates only.
"""

_REACTIONS = """\
## What a limit does

| exceeded | MQTT 3.1, 3.1.1 | MQTT 5.0 |
| --- | --- | --- |
| `connections`, `sessions` | CONNACK 3, close | CONNACK 0x97, close |
| `connects` | CONNACK 3, close | CONNACK 0x9F, close |
| overload | CONNACK 3, close | CONNACK 0x89, close |
| draining | close | DISCONNECT 0x9C, close (0x8B if there is no other hub) |
| `publish_messages`, `publish_bytes`, `device_publish_messages`, `device_publish_bytes`, `persistent_fanout`, `stream_messages`, `stream_bytes` | \
paused (TCP back-pressure) for a limited time, then close | \
paused (TCP back-pressure) for a limited time, then QoS 0 DISCONNECT 0x96, close; QoS 1/2 PUBACK/PUBREC 0x97 |
| a window of these from `1h` on | QoS 0 dropped; QoS 1/2 close | QoS 0 dropped; QoS 1/2 PUBACK/PUBREC 0x97 |
| `deliver_messages`, `deliver_bytes`, `device_deliver_messages`, `device_deliver_bytes` | \
delivered later from the backlog, dropped by policy when it is full | the same |
| `subscriptions`, `session_subscriptions`, `subscribes`, `shared_groups`, `group_members` | SUBACK 0x80 | SUBACK 0x97 |
| `retained_messages`, `retained_bytes` | delivered live, not retained | delivered live, not retained; QoS 1/2 PUBACK/PUBREC 0x97 |
| `packet_bytes` | close | DISCONNECT 0x95, close |
| `will_bytes` | close | CONNACK 0x95, close |
| `user_properties`, `subscribe_filters` | close | DISCONNECT 0x97, close |
| `topic_levels`, `topic_bytes` | close | DISCONNECT 0x90, close |
| `filter_levels`, and a Topic Filter that is too long | SUBACK 0x80 | SUBACK 0x8F |
| `receive_maximum` | not read until earlier ones are answered | DISCONNECT 0x93, close |
| `topic_aliases` | close | DISCONNECT 0x94, close |
| `queued_messages`, `queued_bytes`, `session_queued_messages`, `session_queued_bytes` | dropped by policy | dropped by policy |
| `fanout`, `fanout_bytes` | dropped | dropped |
| `session_expiry_s`, `keep_alive_min_s` | adjusted | adjusted, CONNACK says so |
| `streams` | not created | not created |
| `api_requests` | HTTP 429 | HTTP 429 |
| denied CONNECT (also Will, Client Identifier) | CONNACK 5, close | CONNACK 0x87, close |
| denied SUBSCRIBE | SUBACK 0x80 | SUBACK 0x87 |
| denied PUBLISH | QoS 0 dropped; QoS 1/2 dropped, PUBACK/PUBREC | QoS 0 dropped; QoS 1/2 PUBACK/PUBREC 0x87 |
"""

_NOTES = """\
## Notes

- `connections`: a client that takes over its own session does not count twice.
- `sessions` counts persistent sessions. `session_expiry_s` and `keep_alive_min_s` adjust the value that a client requests; 5.0
  clients get the adjusted value in CONNACK. These two, `receive_maximum` and `topic_aliases` are negotiated at CONNECT: a change applies
  from the next CONNECT on.
- `connects` and `subscribes` refuse at once. The publish rates and `persistent_fanout` pause the publisher for up to ten seconds;
  a message that would have to wait longer is refused at once.
- `subscribes` also refuses, on every plan, a Topic Filter that a client subscribes again while it has not read the retained messages of 1,000
  earlier requests.
- `packet_bytes` and `user_properties` apply to a CONNECT too, and `will_bytes`, `topic_levels` and `topic_bytes` to its Will: the refusal is a
  CONNACK with the code in the table; in 3.x the connection closes without one.
- A CONNECT is read before its tenant is known, so two limits are the same for every plan, even with `unlimited`: 1,024 User Properties,
  and as many in its Will (0x97), and 256 bytes of Client Identifier (0x85, in 3.x 2). The log has `client refused` with the limit as its `rule`.
- `receive_maximum` in 3.x: a client cannot know it, so exceeding it does not close the connection. When this number of its messages waits
  for PUBACK or PUBREC, the client is not read until one of them is answered.
- Overload: above `overload.memory_limit` each listener reads and answers up to 256 CONNECT packets at a time; further connections,
  and those beyond `max_connections`, `max_handshakes` or a full `overload.buffered_bytes`, are closed at once without a CONNACK.
- `topic_levels` and `filter_levels` are at most 1,024 in every plan; `unlimited` means 1,024 there.
- `filter_levels` counts the levels after `$share/{group}/`; `topic_bytes` counts the whole Topic Filter.
- `fanout` and `fanout_bytes`: deliveries above the limit are dropped; the publisher's acknowledgement does not show it.
- The deliver rates refuse nothing: excess messages wait in the session's backlog and are dropped only when it is full.
- Queues: the setting `queues.overflow` decides what a full queue drops. A 5.0 publisher gets 0x97 only if every queue refused and nobody
  got the message otherwise. A calendar window of `persistent_fanout` refuses what would be stored; QoS 0 passes.
- `retained_bytes` counts what is stored, including the topic and about 40 bytes of header.
- `api_requests` is for all keys of a tenant together, in each process of the REST API; with its restart the count begins at zero.
- Every refusal is counted in `iothub_tenant_quota_rejections_total{tenant,quota}`; refusals that a `dry-run:` limit would have caused in
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
        _REACTIONS,
        _NOTES,
    ]
    return "\n".join(parts)


def _names() -> Iterator[str]:
    yield "| name | kind | counted per | settable per device | plan `standard` | limits |"
    yield "| --- | --- | --- | --- | --- | --- |"
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
        )
        yield f"| {' | '.join(cells)} |"
