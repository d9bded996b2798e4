"""The compiled access list equals a naive one, and no name that a client chooses ever means more than itself."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from iothub.base.errors import ConfigError
from iothub_services.auth.acl import compile_policy, explain
from iothub_services.auth.port import Action, Effect, Rule, Scope
from iothub_tenants.accounts.acl_rules import check_filter
from tests.support.night import by_day

LEVELS = ["a", "b", "", "$x", "{device}", "{clientid}"]
NAMES = st.sampled_from(["a", "b", "+", "#", "a/b", "$x", "a/#", "\0", "", "."])
DEVICES = st.sampled_from(["a", "b", "d.1"])
GROUPS = st.lists(st.sampled_from(["g1", "g2"]), unique=True).map(tuple)

topics = st.lists(st.sampled_from(["a", "b", "", "$x", "+x", "d.1"]), min_size=1, max_size=4).map("/".join).filter(bool)
topic_names = topics.filter(lambda topic: "+" not in topic)


@st.composite
def topic_filters(draw: st.DrawFn, levels: tuple[str, ...] = ("a", "b", "", "$x")) -> str:
    parts = draw(st.lists(st.sampled_from([*levels, "+"]), min_size=0, max_size=3))
    if draw(st.booleans()) or not parts:
        parts.append("#")
    return "/".join(parts) or "#"


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    scope = draw(st.sampled_from(Scope))
    subjects = {Scope.DEVICE: ["a", "b", "d.1"], Scope.GROUP: ["g1", "g2"], Scope.TENANT: [""]}
    return Rule(
        scope,
        draw(st.sampled_from(subjects[scope])),
        draw(st.sampled_from(Effect)),
        draw(st.sampled_from(Action)),
        draw(topic_filters(tuple(LEVELS))),
    )


def naive_match(filter: list[str | None], topic: list[str]) -> bool:
    """Recursive and slow, as MQTT §4.7 reads. None is a level that equals nothing."""
    if filter == ["#"]:
        return True
    if not filter or not topic:
        return not filter and not topic
    if filter[0] is None or (filter[0] != "+" and filter[0] != topic[0]):
        return False
    if filter[1:] == ["#"] and not topic[1:]:
        return True
    return naive_match(filter[1:], topic[1:])


def naive_levels(rule: Rule, device: str, client_id: str) -> list[str | None]:
    names = {"{device}": device, "{clientid}": client_id}
    made: list[str | None] = []
    for place, level in enumerate(rule.filter.split("/")):
        value = names.get(level)
        is_inert = value is not None and any(character in value for character in "+#/\0")
        is_hubs_own = place == 0 and value is not None and value.startswith("$") and rule.effect is Effect.ALLOW
        made.append(level if value is None else None if is_inert or is_hubs_own else value)
    return made


def naive_decision(
    known: list[Rule], device: str, groups: tuple[str, ...], client_id: str, action: Action, topic: str
) -> bool:
    if action is Action.PUBLISH and topic.startswith("$"):
        return False
    for scope in (Scope.DEVICE, Scope.GROUP, Scope.TENANT):
        matching = [
            rule.effect
            for rule in known
            if rule.scope is scope
            and rule.action in (action, Action.BOTH)
            and (scope is Scope.TENANT or rule.subject == device or (scope is Scope.GROUP and rule.subject in groups))
            and not (topic.startswith("$") and naive_levels(rule, device, client_id)[0] in ("+", "#"))
            and naive_match(naive_levels(rule, device, client_id), topic.split("/"))
        ]
        if matching:
            return Effect.DENY not in matching
    return False


@settings(max_examples=by_day(80, 1_000), deadline=None)
@given(st.lists(rules(), max_size=6), DEVICES, GROUPS, NAMES, topic_names)
def test_policy_equals_the_naive_reference(
    known: list[Rule], device: str, groups: tuple[str, ...], client_id: str, topic: str
) -> None:
    """Publishing and receiving, and the explanation of both."""
    policy = compile_policy(known, device=device, groups=groups, client_id=client_id, version=1)
    for action, answer in (
        (Action.PUBLISH, policy.may_publish(topic.encode())),
        (Action.SUBSCRIBE, policy.may_receive(topic.encode())),
    ):
        assert answer is naive_decision(known, device, groups, client_id, action, topic)
        explained = explain(known, device=device, groups=groups, client_id=client_id, action=action, topic=topic)
        assert explained.is_allowed is answer


@settings(max_examples=by_day(80, 1_000), deadline=None)
@given(st.lists(rules(), max_size=6), DEVICES, GROUPS, NAMES, topic_names)
def test_fast_flags_never_promise_too_much(
    known: list[Rule], device: str, groups: tuple[str, ...], client_id: str, topic: str
) -> None:
    """A flag speaks of every topic that does not begin with `$`."""
    policy = compile_policy(known, device=device, groups=groups, client_id=client_id, version=1)
    if not topic.startswith("$"):
        assert policy.may_publish(topic.encode()) or not policy.publishes_everything
        assert policy.may_receive(topic.encode()) or not policy.receives_everything


@settings(max_examples=by_day(80, 1_000), deadline=None)
@given(st.lists(rules(), max_size=5), DEVICES, GROUPS, NAMES, topic_filters(), topic_names)
def test_granted_subscription_is_covered_by_a_rule_that_allows(
    known: list[Rule], device: str, groups: tuple[str, ...], client_id: str, requested: str, topic: str
) -> None:
    """Whatever a granted filter matches is received, or was denied by a rule: never merely forgotten."""
    policy = compile_policy(known, device=device, groups=groups, client_id=client_id, version=1)
    if not policy.may_subscribe(requested.encode()):
        return
    levels: list[str | None] = list(requested.split("/"))
    if (topic.startswith("$") and levels[0] in ("+", "#")) or not naive_match(levels, topic.split("/")):
        return
    explained = explain(known, device=device, groups=groups, client_id=client_id, action=Action.SUBSCRIBE, topic=topic)
    assert explained.rule is not None


@settings(max_examples=by_day(80, 1_000), deadline=None)
@given(
    client_id=st.text(st.sampled_from("+#/$|(*.%:\0\nab\u202e\u0430{}"), max_size=8),
    other=st.sampled_from(["up/a", "up/b", "up/a/b", "up", "up/+", "up/#", "x", "$SYS/x"]),
)
@example(client_id="+", other="up/a")
@example(client_id="#", other="up/a/b")
@example(client_id="{device}", other="up/dev1")
def test_identity_strings_are_inert(client_id: str, other: str) -> None:
    """A Client Identifier in a template allows its own level and nothing else, whatever it holds."""
    only = Rule(Scope.TENANT, "", Effect.ALLOW, Action.BOTH, "up/{clientid}")
    policy = compile_policy([only], device="dev1", groups=(), client_id=client_id, version=1)

    if other != f"up/{client_id}" or any(character in client_id for character in "+#/\0"):
        assert not policy.may_publish(other.encode())
        assert not policy.may_receive(other.encode())
        assert not policy.may_subscribe(other.encode())


@settings(max_examples=by_day(100, 200), deadline=None)
@given(st.text(max_size=30))
def test_any_text_as_a_stored_filter_is_harmless(text: str) -> None:
    """Compiling never raises, and an unreadable denial denies."""
    for effect in Effect:
        rule = Rule(Scope.TENANT, "", effect, Action.BOTH, text)
        allow_all = Rule(Scope.TENANT, "", Effect.ALLOW, Action.BOTH, "#")
        policy = compile_policy([rule, allow_all], device="d", groups=(), client_id="c", version=1)
        policy.may_subscribe(b"a/+")
        try:
            check_filter(text)
        except ConfigError:
            if effect is Effect.DENY and "{" not in text and not text.startswith("$share/"):
                assert not policy.may_publish(b"a/b")
