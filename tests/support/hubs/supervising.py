"""A supervisor over children that serve nobody: `python -m tests.support.hubs.supervising DIRECTORY WORKERS`.

It prints its error, and ends with its code. `LOOK_S` in the environment is how often it looks at its children, `STOP_S` how long a stop may take.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from twisted.internet.main import installReactor

from iothub.base.errors import IotHubError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config, Log, Node
from iothub.hub.from_settings import configure_log
from iothub.hub.workers import supervised
from iothub.hub.workers.service_manager import ServiceManager
from iothub.net.hub_reactor import HubReactor


def main() -> int:
    place, workers = Path(sys.argv[1]), int(sys.argv[2])
    reactor = HubReactor()
    installReactor(reactor)  # type: ignore[no-untyped-call]
    supervised.BEAT_S = float(os.environ.get("LOOK_S", supervised.BEAT_S))
    from iothub.hub.workers.supervisor import Supervisor

    configure_log(replace(Log(), format="json"))
    settings = replace(Config(), node=Node(workers=workers, stop_timeout_s=float(os.environ.get("STOP_S", "60"))))
    command = [sys.executable, str(Path(__file__).parent / "supervised_child.py"), str(place)]

    def announce(facts: dict[str, object]) -> None:
        (place / "announced").write_text(json.dumps(facts))

    try:
        return Supervisor(
            settings, DataDir(place), reactor, command, announce, ServiceManager(os.environ), has_store=True
        ).run()
    except IotHubError as error:
        print(error, *error.details, sep="\n", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
