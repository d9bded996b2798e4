"""What a compaction does about events and session states that nobody can read: no checkpoint lacks them unsaid.

Knows what the tasks have counted, not how they found it.

Theory: an event that is damaged today may have been whole when the hub folded it, so the live states have what a checkpoint made without it would
lack. A start prefers the checkpoint, and once it counts the log below goes: so a version that lacks anything is dropped before it counts. The way
out are the live states; only what they lack, too, may be left out, and only by a person who says so.
"""

from __future__ import annotations

from iothub.base.errors import ConfigError, CorruptRecordError
from iothub_spark.catalogue import COMPACTION, FROM_STATE, LEAVE_OUT_DAMAGED
from iothub_spark.spec import Spec
from iothub_spark.stores import marks
from iothub_spark.stores.marks import Written
from iothub_spark.stores.rows import Checkpoints

_NAMED = 5  # of what is damaged, in one line for a person

_FROM_STATE = f"iothub job run {COMPACTION} --option {FROM_STATE.name}=true"
_WITHOUT = f"{_FROM_STATE} --option {LEAVE_OUT_DAMAGED.name}=true"


def require_consistent(spec: Spec) -> None:
    """Raises ConfigError: something shall be left out of what the log alone says, though the live states may have it."""
    if _is_asked(spec, LEAVE_OUT_DAMAGED.name) and not _is_asked(spec, FROM_STATE.name):
        raise ConfigError(
            f"--option {LEAVE_OUT_DAMAGED.name}=true wants {FROM_STATE.name}=true, too: live states may have what the log has lost; "
            f"expected `{_WITHOUT}`"
        )


def require_readable(spec: Spec, checkpoints: Checkpoints, version: int, written: Written) -> None:
    """Let go of a version that lacks what nobody can read, unless a person wants it so.

    Raises CorruptRecordError: with places, and with the way out. Nothing that counts was changed.
    """
    if not written.damaged or _is_asked(spec, LEAVE_OUT_DAMAGED.name):
        return
    checkpoints.drop(version)
    marks.forget(checkpoints, [version])
    raise CorruptRecordError(_refusal(written, is_from_state=_is_asked(spec, FROM_STATE.name)))


def told(spec: Spec, written: Written) -> str:
    """Say what was left out."""
    what = "session states and events" if _is_asked(spec, FROM_STATE.name) else "events"
    return f"{written.damaged} damaged {what} were left out, such as: {written.examples[0]}"


def _refusal(written: Written, *, is_from_state: bool) -> str:
    named = "; ".join(written.examples[:_NAMED])
    more = written.damaged - len(written.examples[:_NAMED])
    places = f"{named}; and {more} more" if more > 0 else named
    if not is_from_state:
        return (
            f"the log has {written.damaged} damaged events ({places}): no checkpoint was made and nothing trimmed; the live session states "
            f"may have seen them while they were whole: `{_FROM_STATE}` begins with those"
        )
    return (
        f"{written.damaged} session states and events are damaged ({places}): no checkpoint was made and nothing trimmed; a running hub writes "
        f"within seconds what it knows, so try again; what is still damaged then is in a backup or lost: `{_WITHOUT}` goes without it"
    )


def _is_asked(spec: Spec, name: str) -> bool:
    return spec.options.get(name) is True
