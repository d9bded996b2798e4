"""Which limit is in force: plan, then the tenant's override, then the device's; the upper layer wins, name by name.

Knows no store and no figures in use. A dry-run limit of a layer leaves the enforced one of the layer below in force, and the other way
round: the two are resolved separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

from iothub_services.quota.grammar import Limits, Window, format_window, parse_limits
from iothub_services.quota.names import Kind, Quota

Layer: TypeAlias = Literal["plan", "tenant", "device"]
LAYERS: tuple[Layer, ...] = ("plan", "tenant", "device")

UNLIMITED = 0
NOTHING = -1
"""How a count's limit of 0 reads, since 0 is unlimited: `used >= limit` refuses, as it must."""

_WIRE_MAXIMUM = 65_535  # what MQTT itself can say for these two; they have no "unlimited"


@dataclass(frozen=True, slots=True)
class EffectiveLimits:
    """What is in force for a tenant, or for one of its devices. One attribute per count and bound, named as the quota.

    0 is unlimited, for a count `NOTHING` (-1) is none at all. Except `receive_maximum` and `topic_aliases`, which are the figures
    for the wire: 65,535 when unlimited, and 0 topic aliases are none. Rates are in `rates`, limits on trial in `dry_run`.
    """

    connections: int = 0
    sessions: int = 0
    session_expiry_s: int = 0
    keep_alive_min_s: int = 0
    subscriptions: int = 0
    session_subscriptions: int = 0
    shared_groups: int = 0
    group_members: int = 0
    filter_levels: int = 0
    topic_levels: int = 0
    topic_bytes: int = 0
    fanout: int = 0
    fanout_bytes: int = 0
    queued_messages: int = 0
    queued_bytes: int = 0
    session_queued_messages: int = 0
    session_queued_bytes: int = 0
    retained_messages: int = 0
    retained_bytes: int = 0
    packet_bytes: int = 0
    receive_maximum: int = _WIRE_MAXIMUM
    topic_aliases: int = _WIRE_MAXIMUM
    will_bytes: int = 0
    user_properties: int = 0
    subscribe_filters: int = 0
    streams: int = 0
    rates: Mapping[Quota, tuple[Window, ...]] = field(default_factory=dict)
    dry_run: Mapping[Quota, tuple[Window, ...]] = field(default_factory=dict)

    def figure(self, quota: Quota) -> int:
        """Return the attribute of a count or bound."""
        figure: int = getattr(self, quota._value_)  # `value` is looked up in Python, and every CONNECT comes by here
        return figure


@dataclass(frozen=True, slots=True)
class Explanation:
    """Which layer sets which value for one name. `layer` None: no layer, so it is unlimited. `text`: the value in the grammar's form."""

    quota: Quota
    text: str
    layer: Layer | None
    dry_run_text: str = ""
    dry_run_layer: Layer | None = None


def resolve(plan: Limits, tenant: Limits | None = None, device: Limits | None = None) -> EffectiveLimits:
    """Return what is in force."""
    layers = (plan, tenant or {}, device or {})
    figures: dict[str, int] = {}
    rates: dict[Quota, tuple[Window, ...]] = {}
    dry_run: dict[Quota, tuple[Window, ...]] = {}
    for quota in Quota:
        windows, _ = _find(quota, layers, is_dry_run=False)
        if quota.kind is Kind.RATE:
            if windows:
                rates[quota] = windows
        elif windows:
            figures[quota.value] = _figure(quota, windows[0])
        on_trial, _ = _find(quota, layers, is_dry_run=True)
        if on_trial:
            dry_run[quota] = on_trial
    return EffectiveLimits(rates=rates, dry_run=dry_run, **figures)


def resolve_texts(plan: str, tenant: str = "", device: str = "") -> EffectiveLimits:
    """Return what is in force, from the layers as they are stored.

    Raises:
        ConfigError: a stored text is not of the grammar.
    """
    return resolve(parse_limits(plan), parse_limits(tenant), parse_limits(device))


def explain(
    plan: Limits, tenant: Limits | None = None, device: Limits | None = None, names: Iterable[Quota] = Quota
) -> list[Explanation]:
    """Say which layer set what, in the order of `names`."""
    return [_explain(quota, (plan, tenant or {}, device or {})) for quota in names]


def _explain(quota: Quota, layers: tuple[Limits, ...]) -> Explanation:
    windows, layer = _find(quota, layers, is_dry_run=False)
    on_trial, dry_run_layer = _find(quota, layers, is_dry_run=True)
    return Explanation(quota, _text(quota, windows), layer, _text(quota, on_trial) if on_trial else "", dry_run_layer)


def _text(quota: Quota, windows: tuple[Window, ...]) -> str:
    return ",".join(format_window(quota, window) for window in windows) or "unlimited"


def _find(quota: Quota, layers: tuple[Limits, ...], *, is_dry_run: bool) -> tuple[tuple[Window, ...], Layer | None]:
    """Return the windows of the uppermost layer that says something; explicitly unlimited is no window, with its layer."""
    for layer, limits in zip(reversed(LAYERS), reversed(layers), strict=True):
        windows = tuple(window for window in limits.get(quota, ()) if window.is_dry_run is is_dry_run)
        if windows:
            return tuple(window for window in windows if window.limit is not None), layer
    return (), None


def _figure(quota: Quota, window: Window) -> int:
    limit = window.limit or 0
    if quota in (Quota.RECEIVE_MAXIMUM, Quota.TOPIC_ALIASES):
        return limit
    return limit or NOTHING


def _check_names() -> None:
    """A quota that is no attribute would be read as unlimited: better not to start."""
    known = {each.name for each in fields(EffectiveLimits)}
    missing = [quota.value for quota in Quota if quota.kind is not Kind.RATE and quota.value not in known]
    if missing:
        raise RuntimeError(f"EffectiveLimits lacks {', '.join(missing)}")


_check_names()
