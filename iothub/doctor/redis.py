"""Redis: whether it answers, how fast, which version, and whether its settings suit the hub.

Knows no key; writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from iothub.config.sections import Redis
from iothub.doctor.findings import Check, Finding, State, of_probe, timed
from iothub.hub.stores.drivers import require_extra
from iothub_services.redis.calls import command

_NAME = "Redis"
_WITHOUT_LEDGER = "until then each hub refuses what exceeds its last share of the limits (quota.ledger)"
_WITHOUT_CACHE = "until then the hub works without this cache"
_OLDEST = (6, 2)
_ASKED = 5  # the fastest of this many counts: the first ones are colder
_SLOW_S = 0.01
_LOSSLESS = "noeviction"


def checks(settings: Redis, *, has_ledger: bool = False) -> list[Check]:
    """`has_ledger`: Redis has the quota ledger, without which new connections may be refused; without a cache the hub only gets slower."""
    return [Check(_NAME, lambda: _check(settings, has_ledger=has_ledger))]


def _check(settings: Redis, *, has_ledger: bool) -> Iterator[Finding]:
    require_extra("redis.addresses", "redis", "redis", "hiredis")
    from iothub_services.redis import from_settings
    from iothub_services.redis.probe import probe

    found = probe(settings)
    if not found.is_reached:
        state, beside = (State.FAIL, _WITHOUT_LEDGER) if has_ledger else (State.WARN, _WITHOUT_CACHE)
        yield of_probe(_NAME, found, state, beside)
        return
    with closing(from_settings.blocking(settings, "iothub-doctor")) as redis:
        redis.run("PING")
        seconds = min(timed(lambda: redis.run("PING"))[1] for _ in range(_ASKED))
        facts = _facts(
            redis.run_many([command("INFO", "server"), command("INFO", "persistence"), command("INFO", "memory")])
        )
    yield _answer(facts, seconds)
    yield from _remarks(facts)


def _facts(answers: Sequence[object]) -> dict[str, str]:
    """Read the lines of INFO; empty for a user without the right to it."""
    facts: dict[str, str] = {}
    for answer in answers:
        if isinstance(answer, bytes):
            pairs = (line.partition(":") for line in answer.decode(errors="replace").splitlines())
            facts.update({name: value for name, mark, value in pairs if mark})
    return facts


def _answer(facts: Mapping[str, str], seconds: float) -> Finding:
    version = facts.get("redis_version")
    if version is None:
        return Finding(
            _NAME, State.OK, "answers; its user has no right to read its version and settings", seconds=seconds
        )
    text = f"version {version}, {facts.get('used_memory_human', '?')} in use"
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < _OLDEST:
        return Finding(_NAME, State.WARN, text, "upgrade it to 6.2 or newer; older ones are not tested", seconds)
    if seconds > _SLOW_S:
        return Finding(_NAME, State.WARN, text, "check the network; an answer should take less than 10 ms", seconds)
    return Finding(_NAME, State.OK, text, seconds=seconds)


def _remarks(facts: Mapping[str, str]) -> Iterator[Finding]:
    """Check its settings for persistence and memory."""
    if not facts:
        return
    if facts.get("aof_enabled") == "0":
        yield Finding(
            "Redis persistence",
            State.WARN,
            "appendonly is off: a restart loses its content",
            "set appendonly yes, unless Redis holds only the cache",
        )
    else:
        yield Finding("Redis persistence", State.OK, "appendonly is on")
    policy, most = facts.get("maxmemory_policy", "?"), facts.get("maxmemory", "0")
    if most == "0":
        advice = "set maxmemory, so that the machine does not run out of memory"
        yield Finding("Redis memory", State.WARN, f"maxmemory is not set, policy {policy}", advice)
    elif policy != _LOSSLESS and not policy.startswith("volatile"):
        advice = "set maxmemory-policy volatile-lru (or noeviction), unless Redis holds only the cache"
        yield Finding("Redis memory", State.WARN, f"policy {policy} removes keys that do not expire", advice)
    else:
        yield Finding("Redis memory", State.OK, f"at most {facts.get('maxmemory_human', most)}, policy {policy}")
