"""What may one device do: rules compiled into a Policy that the message plane can ask, and the same answer explained.

Knows no store, no cache and no sessions; what a rule is comes from `port`, how a filter matches from `iothub.engine.filters`.

Theory. Scopes are asked in the order device, group, tenant. Within a scope deny comes before allow; the first scope with a match
decides; no match anywhere: denied. A message is matched by its Topic Name; a SUBSCRIBE needs one allow filter that covers the
requested one and is refused by a deny filter that covers it wholly; narrower denials act on each message at delivery.

Templates. A level that is exactly `{device}` or `{clientid}` is replaced as a level and stands for itself: a name that holds
`+ # /` or U+0000 can equal no level of a Topic Name, so such a rule matches nothing. No text is ever joined and read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from iothub.engine.filters import check_topic_filter, covers, topic_matches
from iothub_services.auth.port import Action, Effect, Rule, Scope

DEVICE_LEVEL = "{device}"
CLIENT_ID_LEVEL = "{clientid}"

_PRECEDENCE = (Scope.DEVICE, Scope.GROUP, Scope.TENANT)
_EVERYTHING = b"#"
_A = {Effect.DENY: "a deny", Effect.ALLOW: "an allow"}
_MOST_LEVELS = 65_536
_MOST_BYTES = 65_535
_NEVER_A_LEVEL = frozenset("+#/\0")
_SERVERS_OWN = "topics that begin with $ belong to the hub and are never published by clients"


class _Filters:
    """Some Topic Filters: exact ones in a set, the others in a row."""

    __slots__ = ("exact", "wildcards")

    def __init__(self, filters: Iterable[bytes]) -> None:
        known = dict.fromkeys(filters)
        self.exact = frozenset(one for one in known if b"+" not in one and b"#" not in one)
        self.wildcards = tuple(one for one in known if one not in self.exact)

    def __bool__(self) -> bool:
        return bool(self.exact or self.wildcards)

    def match(self, topic: bytes) -> bool:
        return topic in self.exact or any(topic_matches(one, topic) for one in self.wildcards)

    def cover(self, requested: bytes) -> bool:
        return requested in self.exact or any(covers(one, requested) for one in self.wildcards)


class _ScopeRules:
    """The rules of one scope for one direction."""

    __slots__ = ("allow", "deny")

    def __init__(self, deny: Iterable[bytes], allow: Iterable[bytes]) -> None:
        self.deny = _Filters(deny)
        self.allow = _Filters(allow)


class CompiledPolicy:
    """What one device with one Client Identifier may do (`iothub.engine.ports.Policy`). Immutable and free of names, so it can be shared.

    The `..._everything` flags speak of Topic Names that do not begin with "$"; for the others the methods are asked.
    """

    __slots__ = ("__weakref__", "_publish", "_receive", "publishes_everything", "receives_everything", "version")

    def __init__(self, version: int, publish: tuple[_ScopeRules, ...], receive: tuple[_ScopeRules, ...]) -> None:
        self.version = version
        self._publish = publish
        self._receive = receive
        self.publishes_everything = _allows_everything(publish)
        self.receives_everything = _allows_everything(receive)

    def may_publish(self, topic: bytes) -> bool:
        """Say whether a PUBLISH, or a Will, to this (checked) Topic Name is allowed. Never to `$...`."""
        return not topic.startswith(b"$") and _decide(self._publish, topic)

    def may_receive(self, topic: bytes) -> bool:
        """Say whether a message with this Topic Name may be delivered."""
        return _decide(self._receive, topic)

    def may_subscribe(self, filter: bytes) -> bool:
        """Say whether this (checked) Topic Filter may be subscribed. The caller has stripped `$share/{group}/`."""
        for scope in self._receive:
            if scope.deny.cover(filter):
                return False
            if scope.allow.cover(filter):
                return True
        return False


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer and who gave it; `rule` is None when no rule matched or none was asked."""

    is_allowed: bool
    rule: Rule | None
    reason: str


def compile_policy(
    rules: Iterable[Rule], *, device: str, groups: Sequence[str], client_id: str, version: int
) -> CompiledPolicy:
    """Compile the rules that concern `device`, a member of `groups`, connected as `client_id`. Others are left out."""
    mine = rules_for(rules, device, groups)
    publish = _compile_direction(mine, Action.PUBLISH, device, client_id)
    receive = _compile_direction(mine, Action.SUBSCRIBE, device, client_id)
    return CompiledPolicy(version, publish, receive)


def rules_for(rules: Iterable[Rule], device: str, groups: Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules that concern `device` as a member of `groups`, in their order."""
    return tuple(rule for rule in rules if _concerns(rule, device, groups))


def explain(
    rules: Iterable[Rule], *, device: str, groups: Sequence[str], client_id: str, action: Action, topic: str
) -> Decision:
    """Say what would be decided and by which rule: a Topic Name for `PUBLISH`, a Topic Filter without `$share` for `SUBSCRIBE`.

    A Topic Name with `SUBSCRIBE` asks whether a message with it would be delivered.
    """
    return explain_rules(rules, device=device, groups=groups, client_id=client_id, action=action, topic=topic)[1]


def explain_rules(
    rules: Iterable[Rule], *, device: str, groups: Sequence[str], client_id: str, action: Action, topic: str
) -> tuple[list[Rule], Decision]:
    """Return as `explain`, and the rules that were asked before and do not match, in the order in which they are."""
    asked = topic.encode()
    passed: list[Rule] = []
    if action is Action.PUBLISH and topic.startswith("$"):
        return passed, Decision(False, None, _SERVERS_OWN)
    mine = [rule for rule in rules_for(rules, device, groups) if rule.action in (action, Action.BOTH)]
    for scope in _PRECEDENCE:
        for effect in (Effect.DENY, Effect.ALLOW):
            for rule in mine:
                if rule.scope is not scope or rule.effect is not effect:
                    continue
                filter = resolve_filter(rule, device, client_id)
                if filter is not None and covers(filter, asked):
                    reason = f"the first match is {_A[effect]} rule of the {scope.value}"
                    return passed, Decision(effect is Effect.ALLOW, rule, reason)
                passed.append(rule)
    return passed, Decision(False, None, "no rule matches, and what is not allowed is denied")


def resolve_filter(rule: Rule, device: str, client_id: str) -> bytes | None:
    """Return the rule's Topic Filter for one device and Client Identifier; None: it can match nothing.

    A stored filter that is not valid matches nothing when it allows, and everything when it denies: damage never grants anything.
    """
    if not _is_filter(rule.filter):
        return _EVERYTHING if rule.effect is Effect.DENY else None
    names = {DEVICE_LEVEL: device, CLIENT_ID_LEVEL: client_id}
    levels = rule.filter.split("/")
    values = [names[level] for level in levels if level in names]
    if any(not _NEVER_A_LEVEL.isdisjoint(value) for value in values):
        return None
    if levels[0] in names and names[levels[0]].startswith("$") and rule.effect is Effect.ALLOW:
        return (
            None  # only a rule that names `$...` itself reaches the hub's own topics, never a client's choice of name
        )
    filter = "/".join(names.get(level, level) for level in levels)
    return filter.encode() if _is_filter(filter) else None


def templates_of(rule: Rule) -> frozenset[str]:
    """Return which of `{device}` and `{clientid}` the rule's filter uses."""
    return frozenset(level for level in rule.filter.split("/") if level in (DEVICE_LEVEL, CLIENT_ID_LEVEL))


def _is_filter(text: str) -> bool:
    return check_topic_filter(text.encode("utf-8", "surrogatepass"), _MOST_LEVELS, _MOST_BYTES) == 0


def _concerns(rule: Rule, device: str, groups: Sequence[str]) -> bool:
    if rule.scope is Scope.TENANT:
        return True
    return rule.subject == device if rule.scope is Scope.DEVICE else rule.subject in groups


def _compile_direction(rules: Sequence[Rule], action: Action, device: str, client_id: str) -> tuple[_ScopeRules, ...]:
    scopes = []
    for scope in _PRECEDENCE:
        filters: dict[Effect, list[bytes]] = {Effect.DENY: [], Effect.ALLOW: []}
        for rule in rules:
            if rule.scope is scope and rule.action in (action, Action.BOTH):
                filter = resolve_filter(rule, device, client_id)
                if filter is not None:
                    filters[rule.effect].append(filter)
        if any(filters.values()):
            scopes.append(_ScopeRules(filters[Effect.DENY], filters[Effect.ALLOW]))
    return tuple(scopes)


def _decide(scopes: tuple[_ScopeRules, ...], topic: bytes) -> bool:
    for scope in scopes:
        if scope.deny.match(topic):
            return False
        if scope.allow.match(topic):
            return True
    return False


def _allows_everything(scopes: tuple[_ScopeRules, ...]) -> bool:
    for scope in scopes:
        if scope.deny:
            return False
        if scope.allow.cover(_EVERYTHING):
            return True
    return False
