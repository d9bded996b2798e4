"""What a port of the store process is asked, as both sides need it: which verbs there are, and the shapes of their arguments and answers.

Knows no port.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iothub_services.store_process.frames import (
    FrameError,
    Shape,
    anything,
    array,
    data,
    flag,
    number,
    pair,
    read_error,
    row,
    text,
    unpack,
)

RECALL = "recall"
"""A verb of every port: the answer to an earlier request of this client, if that was done."""

PROBE = "probe"
"""A verb of the ports that write: commit something small."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb. `is_write`: it goes through the one thread that writes, into a commit. `is_kept`: its answer is stored with what it has done."""

    args: tuple[Shape[Any], ...]
    answer: Shape[Any]
    is_write: bool = False
    is_kept: bool = False


Verbs = Mapping[str, Verb]

HELLO = row(pair, number, text, data)  # version, port, client
WELCOME = row(pair, number, data, anything)  # version, the store process's incarnation, what it has to say
REQUEST = row(pair, number, text, array)  # number, verb, arguments
ANSWER = row(pair, number, data, anything)  # number, outcome, what the port says besides
_OUTCOME = row(pair, flag, anything)


def read_args(verb: Verb, args: tuple[object, ...]) -> list[object]:
    """Read the arguments of a verb. Raises FrameError."""
    if len(args) != len(verb.args):
        raise FrameError(f"{len(args)} arguments for {len(verb.args)}")
    return [shape(each) for shape, each in zip(verb.args, args, strict=True)]


def read_outcome(outcome: bytes, shape: Shape[Any]) -> Any:
    """Read an answer. Raises the error that it is, or FrameError."""
    fields: tuple[Any, ...] = _OUTCOME(unpack(outcome))
    is_done, value = fields
    if not is_done:
        raise read_error(value)
    return shape(value)
