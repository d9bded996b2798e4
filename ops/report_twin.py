"""Prints after an installation which twin of the message plane will run."""

from __future__ import annotations

import importlib.util
import sys


def main() -> None:
    found = importlib.util.find_spec("iothub.engine.poller")
    if found is not None and (found.origin or "").endswith(".so"):
        sys.stdout.write("installed: the compiled message plane will run\n")
        return
    sys.stdout.write(
        "installed WITHOUT the compiled message plane, because no working C compiler was found; the plain twin will run.\n"
        "It works the same but several times slower. To compile: install gcc and the Python headers, then `make clean install`.\n"
    )


if __name__ == "__main__":
    main()
