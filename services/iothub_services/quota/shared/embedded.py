"""The quota ledger in one process of a machine, for its workers: what `scripts` does in Redis, over dictionaries.

Knows no socket. Whoever changes a script changes its twin here: the same tests and a state machine hold them equal, answer by answer.

Theory. `scripts` says what is granted and why. What is kept here ends with the process, as with a Redis that saves nothing: the workers declare
it again. Figures of calendar windows are the exception: `know` is given what the workers' directories say before the first worker asks, so that
a window goes on where it was, whoever is not there yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from iothub.base.clock import Clock
from iothub_services.quota.grammar import DAY_S
from iothub_services.quota.shared import scripts
from iothub_services.quota.shared.keys import Keys
from iothub_services.quota.shared.scripts import GAP_MS, LAPSED, SETTLE_MS
from iothub_services.quota.usage import UsageRow
from iothub_services.redis.calls import Argument, RedisRefusedError, Reply

KEYS = Keys(str)
"""Of a ledger that one installation has for itself."""

_SWEEP_MS = 60_000
_WANTED_MAX = 1_000
Held = TypeVar("Held")


class _LapsedError(Exception):
    """The hub that asks has no lease, or the ledger has missed a call of it."""


class _Hashes(Generic[Held]):
    """Keys that hold a figure for each hub and expire as those of Redis do; an empty one is not there."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Held]] = {}
        self._ends: dict[str, int] = {}  # in ms

    def of(self, key: str, now: int) -> dict[str, Held]:
        """Return a copy of what a key holds."""
        self._expire(key, now)
        return dict(self._kept.get(key, {}))

    def put(self, key: str, name: str, held: Held) -> None:
        self._kept.setdefault(key, {})[name] = held

    def drop(self, key: str, name: str) -> None:
        found = self._kept.get(key)
        if found is not None:
            found.pop(name, None)
            if not found:
                self._forget(key)

    def end_at(self, key: str, end_ms: int, now: int) -> None:
        self._ends[key] = end_ms
        if end_ms <= now:
            self._forget(key)

    def sweep(self, now: int) -> None:
        for key in list(self._ends):
            self._expire(key, now)

    def __len__(self) -> int:
        return len(self._kept)

    def _expire(self, key: str, now: int) -> None:
        if now > self._ends.get(key, now):
            self._forget(key)

    def _forget(self, key: str) -> None:
        self._kept.pop(key, None)
        self._ends.pop(key, None)


class EmbeddedLedger:
    """Must be used on one thread. `len` of it: how many counts, rates and windows it has.

    Invariant: `settled` is None until the first hub has entered; until then, and after a loss, every script answers `LAPSED`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hubs: dict[str, tuple[int, int]] = {}  # until, number
        self._settled: int | None = None
        self._seen = 0
        self._wanted: dict[str, int] = {}
        self._counts: _Hashes[tuple[int, int]] = _Hashes()  # granted, spare
        self._rates: _Hashes[tuple[float, float]] = _Hashes()  # held, wished
        self._windows: _Hashes[int] = _Hashes()
        self._swept = 0
        self._twins: Mapping[str, Callable[[int, Sequence[str], _Arguments], Reply]] = {
            scripts.ENTER.digest: self._enter,
            scripts.CLAIM.digest: self._claim,
            scripts.LEAVE.digest: self._leave,
            scripts.TURN.digest: self._turn,
            scripts.RESERVE.digest: self._reserve,
            scripts.SHARE.digest: self._share,
            scripts.ADD_UP.digest: self._add_up,
        }

    def run(self, digest: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Reply:
        """Run the twin of the script with this digest. Raises RedisRefusedError: there is none."""
        twin = self._twins.get(digest)
        if twin is None:
            raise RedisRefusedError("the quota ledger does not know this script: it is of another version of the hub")
        now = round(self._clock.wall() * 1_000_000) // 1000
        self._sweep(now)
        try:
            return twin(now, keys, _Arguments(arguments))
        except _LapsedError:
            return LAPSED if digest == scripts.CLAIM.digest else [LAPSED]

    def know(self, place: str, rows: Iterable[UsageRow]) -> None:
        """Begin with what a data directory has used of its windows."""
        now = round(self._clock.wall() * 1_000_000) // 1000
        for row in rows:
            self._note_window(KEYS.window(row.key, row.start), place, row.used, row.end + DAY_S, now)

    def __len__(self) -> int:
        return len(self._counts) + len(self._rates) + len(self._windows)

    # --- leases

    def _enter(self, now: int, _keys: Sequence[str], given: _Arguments) -> Reply:
        wait_ms, was_there = given.number(3), given.text(4)
        if self._settled is None or was_there == "1":
            self._settled = now + wait_ms
        self._see(now, given.lease)
        self._hubs[given.hub] = (now + given.lease, given.call_number)
        return max(self._settled - now, 0)

    def _claim(self, now: int, _keys: Sequence[str], given: _Arguments) -> Reply:
        self._present(now, given)
        start = given.text(3)
        gone = [name for name in self._hubs if name != given.hub and name.startswith(start)]
        for name in gone:
            del self._hubs[name]
        return len(gone)

    def _leave(self, _now: int, _keys: Sequence[str], given: _Arguments) -> Reply:
        return int(self._hubs.pop(given.hub, None) is not None)

    def _turn(self, now: int, _keys: Sequence[str], given: _Arguments) -> Reply:
        living, initialising = self._present(now, given)
        for name in [name for name, (until, _) in self._hubs.items() if until < now - given.lease]:
            del self._hubs[name]
        for name in [name for name, at in self._wanted.items() if at <= now - given.number(3)]:
            del self._wanted[name]
        wanted = sorted(self._wanted, key=lambda name: (self._wanted[name], name.encode()))[:_WANTED_MAX]
        return [initialising, len(living), *(name.encode() for name in wanted)]

    def _see(self, now: int, lease: int) -> None:
        """After a time without any hub, leases that held begin anew."""
        last, self._seen = self._seen, now
        if abs(now - last) <= GAP_MS:
            return
        self._hubs = {name: (now + lease, number) for name, (until, number) in self._hubs.items() if until >= last}
        if self._settled is not None:
            self._settled = min(self._settled, now + SETTLE_MS)

    def _present(self, now: int, given: _Arguments) -> tuple[set[str], int]:
        """Renew the lease; return who lives, and for how many ms hubs may still declare. Raises _LapsedError."""
        if self._settled is None:
            raise _LapsedError
        self._see(now, given.lease)
        held = self._hubs.get(given.hub)
        if held is None or held[0] < now:
            raise _LapsedError
        number = held[1]
        if number + 1 != given.call_number:
            self._settled = now + SETTLE_MS
            del self._hubs[given.hub]
            raise _LapsedError
        self._hubs[given.hub] = (now + given.lease, number + 1)
        living = {name for name, (end, _) in self._hubs.items() if end >= now}
        return living, max(self._settled - now, 0)

    # --- what is divided

    def _reserve(self, now: int, keys: Sequence[str], given: _Arguments) -> Reply:
        living, initialising = self._present(now, given)
        wanted_ms, kept_s = given.number(3), given.number(4)
        answer: list[Reply] = [initialising]
        for place, key in enumerate(keys[3:]):
            at = 5 + place * 5
            name, (limit, used, needed, wished) = given.text(at), (given.number(at + part) for part in range(1, 5))
            before, held = self._held(self._counts, key, living, given.hub, now)
            others, spare = sum(each[0] for each in held), sum(each[1] for each in held)
            granted, free = used, limit - others
            if not initialising and free > used:
                granted = min(needed, free)
                if granted == needed < wished and now - self._wanted.get(name, 0) > wanted_ms:
                    granted += max(min(wished - needed, (free - needed) // (2 * len(living))), 0)
            if granted > 0:
                self._counts.put(key, given.hub, (granted, granted - used))
                self._counts.end_at(key, now + kept_s * 1000, now)
            else:
                self._counts.drop(key, given.hub)
            is_above = granted + others > limit
            if ((granted < needed or is_above) and spare > 0) or (is_above and granted > (before or (0, 0))[0]):
                self._wanted[name] = now
            answer += [granted, others, spare]
        return answer

    def _share(self, now: int, keys: Sequence[str], given: _Arguments) -> Reply:
        living, initialising = self._present(now, given)
        kept_s = given.number(3)
        answer: list[Reply] = [initialising]
        for place, key in enumerate(keys[3:]):
            at = 4 + place * 4
            name, limit = given.text(at), given.number(at + 1)
            wish, share = given.fraction(at + 2), given.fraction(at + 3)
            _, others = self._held(self._rates, key, living, given.hub, now)
            if wish < 0:
                share = 0.0
                self._rates.drop(key, given.hub)
            else:
                if not initialising:
                    target = _target(wish, [each[1] for each in others], limit)
                    held = 0.0
                    for each in others:
                        held += each[0]
                    share = max(min(target, limit - held), 0.0)
                    if share < target * 0.98:
                        self._wanted[name] = now
                share = _rounded(share)
                self._rates.put(key, given.hub, (share, _rounded(wish)))
                self._rates.end_at(key, now + kept_s * 1000, now)
            answer.append(b"%.6f" % share)
        return answer

    def _held(
        self, hashes: _Hashes[Held], key: str, living: set[str], hub: str, now: int
    ) -> tuple[Held | None, list[Held]]:
        """Return what the hub and the others hold; who does not live holds nothing any more."""
        found = hashes.of(key, now)
        for name in found.keys() - living:
            hashes.drop(key, name)
        return found.get(hub), [held for name, held in found.items() if name != hub and name in living]

    # --- calendar windows

    def _add_up(self, now: int, keys: Sequence[str], given: _Arguments) -> Reply:
        self._present(now, given)
        place = given.text(3)
        answer: list[Reply] = [0]
        for number, key in enumerate(keys[2:]):
            at = 4 + number * 3
            used, is_anew = given.number(at), given.text(at + 2) == "1"
            if is_anew or used > self._windows.of(key, now).get(place, 0):
                self._note_window(key, place, used, given.number(at + 1), now)
            total = sum(self._windows.of(key, now).values())
            answer.append(b"%d" % (total - used))
        return answer

    def _note_window(self, key: str, place: str, used: int, end_s: int, now: int) -> None:
        self._windows.put(key, place, used)
        self._windows.end_at(key, end_s * 1000, now)

    def _sweep(self, now: int) -> None:
        """Free what has expired and nobody asks for: looked for once a minute."""
        if abs(now - self._swept) >= _SWEEP_MS:
            self._swept = now
            for hashes in (self._counts, self._rates, self._windows):
                hashes.sweep(now)


class _Arguments:
    """What a script is called with besides its keys, counted from 0."""

    def __init__(self, given: Sequence[Argument]) -> None:
        self._given = given
        self.hub = self.text(0)
        self.call_number = self.number(1)
        self.lease = self.number(2)

    def text(self, place: int) -> str:
        given = self._given[place]
        return given.decode() if isinstance(given, bytes) else str(given)

    def number(self, place: int) -> int:
        return int(self._given[place])

    def fraction(self, place: int) -> float:
        return float(self._given[place])


def _target(wish: float, others: Sequence[float], limit: int) -> float:
    """Return a hub's part: in proportion to its wish if all wishes fit, else a fair one."""
    total = wish
    for each in others:
        total += each
    if total <= limit:
        return wish * limit / total if total else 0.0
    left, many = float(limit), len(others) + 1
    for each in sorted([wish, *others]):
        part = min(each, left / many)
        if each == wish:
            return part
        left, many = left - part, many - 1
    raise AssertionError("the wish is one of the wishes")


def _rounded(number: float) -> float:
    """Keep what Redis keeps as text."""
    return float(f"{number:.6f}")
