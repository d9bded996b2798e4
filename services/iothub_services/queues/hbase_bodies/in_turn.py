"""One sweep by one process at a time, whoever asks for it: a hub once a day, or an operator now.

Knows the turn and the sweep; knows no settings.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from iothub.base.errors import BackendError
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.tables import Tables
from iothub_services.queues.hbase_bodies.sweep import Swept, Watch, sweep
from iothub_services.queues.hbase_bodies.turn import BEAT_MS, Turn


def sweep_in_turn(
    caller: Caller,
    tables: Tables,
    age_s: float,
    watch: Watch,
    monotonic: Callable[[], float],
    *,
    every_s: float = 0.0,
) -> Swept | None:
    """Sweep what is older than `age_s`; None: it was done less than `every_s` ago, or somebody is at it.

    Raises:
        BackendError: HBase cannot be reached, or refused; what was deleted stays deleted.
        ConflictError: Somebody is at it, and it is asked for now; or this process was silent for too long.
        CorruptRecordError: The row that says whose turn it is is damaged.
        NotFoundError: There is no table of queues, or of bodies.
    """
    turn = Turn(caller, tables.queue_index)
    now_ms = turn.take(int(every_s * 1000))
    if not now_ms:
        return None
    beaten_at = monotonic()

    def beat(swept: Swept) -> None:
        nonlocal beaten_at
        watch(swept)
        if (monotonic() - beaten_at) * 1000 >= BEAT_MS:
            turn.beat()
            beaten_at = monotonic()

    is_done = False
    try:
        swept = sweep(caller, tables, now_ms - int(age_s * 1000), beat)
        is_done = True
    finally:
        with suppress(BackendError):  # then it counts as taken for a while
            turn.give_back(is_done=is_done)
    return swept


def dry_sweep(caller: Caller, tables: Tables, age_s: float, watch: Watch) -> Swept:
    """Say what `sweep_in_turn` would do, and delete nothing. Raises as it does, but for ConflictError."""
    now_ms = Turn(caller, tables.queue_index).now_ms()
    return sweep(caller, tables, now_ms - int(age_s * 1000), watch, is_dry_run=True)
