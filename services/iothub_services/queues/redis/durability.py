"""What a Redis server promises of what it has answered: is it on the disk, and does nothing go to make room?

Knows CONFIG, INFO and their words; knows no queue.

Theory: `appendonly yes` with `appendfsync always` syncs the file before any answer leaves. With `everysec` one could ask behind each batch
(`WAITAOF`), but a batch would wait a second for its sync, and readers would see what is not on the disk yet. A `maxmemory-policy` of
`allkeys-...` removes queues to free memory; those of `volatile-...` do not, for no key of a queue expires.

Invariant: `no-appendfsync-on-rewrite` must be `no`. With `yes` Redis does not sync while it rewrites the file, so a power cut loses messages
that were acknowledged, although `appendfsync` is `always`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iothub.base.errors import BackendError
from iothub_services.redis.calls import Call, Reply, command

LEAST_VERSION = (6, 2)

_ASKED = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy")


def questions() -> list[Call]:
    """Return what to ask, for `faults`."""
    return [command("INFO", "server"), *[command("CONFIG", "GET", name) for name in _ASKED]]


def faults(replies: Sequence[Reply], *, is_memory_enough: bool = False) -> list[str]:
    """Say why queues may not be kept, by the answers to `questions`. `is_memory_enough`: what Redis has in memory counts as stored.

    Raises:
        BackendError: It cannot be asked.
    """
    refused = next((reply for reply in replies if isinstance(reply, BackendError)), None)
    if refused is not None:
        if refused.retryable:
            raise refused
        return [f"its settings cannot be looked at ({refused.fact}): allow this user CONFIG GET and INFO (ACL SETUSER)"]
    server = _info(replies[0])
    found = dict(zip(_ASKED, map(_value, replies[1:]), strict=True))
    always = _always(_version(server.get("redis_version", "")), server.get("redis_mode", ""), found)
    return always if is_memory_enough else [*always, *_unsynced(found)]


def _always(version: tuple[int, ...], mode: str, found: Mapping[str, str]) -> list[str]:
    why = []
    if version < LEAST_VERSION:
        shown = ".".join(map(str, version))
        why.append(f"it is version {shown}, queues need {'.'.join(map(str, LEAST_VERSION))} or newer")
    if mode == "cluster":
        why.append(
            "it is in cluster mode, which has no transaction of several queues: use a server that is not, or Sentinel"
        )
    policy = found["maxmemory-policy"]
    if policy != "noeviction" and not policy.startswith("volatile"):
        why.append(f'maxmemory-policy is "{policy}", which removes queues to make room: set it to noeviction')
    return why


def _unsynced(found: Mapping[str, str]) -> list[str]:
    why = []
    if found["appendonly"] != "yes":
        why.append(f'appendonly is "{found["appendonly"]}", so nothing is on the disk: set it to yes')
    if found["appendfsync"] != "always":
        why.append(
            f'appendfsync is "{found["appendfsync"]}", so a crash takes what was acknowledged last: set it to always'
        )
    if found["no-appendfsync-on-rewrite"] != "no":
        why.append(
            "no-appendfsync-on-rewrite is on, so nothing is synced while the append-only file is rewritten: set it to no"
        )
    return why


def _info(info: Reply) -> dict[str, str]:
    text = info.decode(errors="replace") if isinstance(info, bytes) else ""
    return {name: said.strip() for name, _, said in [line.partition(":") for line in text.splitlines()]}


def _version(said: str) -> tuple[int, ...]:
    return tuple(int(part) for part in said.split(".")[:2] if part.isdecimal())


def _value(reply: Reply) -> str:
    match reply:
        case [bytes(), bytes() as value]:
            return value.decode(errors="replace")
    return "unknown"
