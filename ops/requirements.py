"""Print the requirements of one extra of setup.cfg, one a line: `make test` adds them without building the package again."""

from __future__ import annotations

import sys
from configparser import ConfigParser


def main() -> None:
    setup = ConfigParser()
    setup.read("setup.cfg")
    sys.stdout.write(setup["options.extras_require"][sys.argv[1]].strip().replace(";", "\n") + "\n")


if __name__ == "__main__":
    main()
