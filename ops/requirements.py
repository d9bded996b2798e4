"""Print the requirements of extras of setup.cfg, one a line: they are added to an installation without compiling it again."""

from __future__ import annotations

import sys
from configparser import ConfigParser


def main() -> None:
    setup = ConfigParser()
    setup.read("setup.cfg")
    for extra in sys.argv[1:]:
        sys.stdout.write(setup["options.extras_require"][extra].strip().replace(";", "\n") + "\n")


if __name__ == "__main__":
    main()
