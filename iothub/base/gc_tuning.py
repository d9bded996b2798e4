"""When Python looks for garbage: rarely while much is made that stays, as by a start, and once a hub has started."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for none meanwhile, nor ever in what is there at the end: it stays, and Python would go through it again and again.

    For work without cycles that ends soon. What a failure leaves does not stay: it is looked at as ever.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


def relax() -> None:
    """Look rarely from now on: what is loaded stays, and going through it again and again takes an eighth of the time of a start."""
    gc.set_threshold(50_000, 20, 100)


def settle() -> None:
    """What lives as long as the hub is looked at no more."""
    gc.freeze()
    relax()
