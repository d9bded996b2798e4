"""`python -m ops.services`: the real servers from the command line; `services` does the work."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from ops.services.errors import ServicesError
from ops.services.places import Places, Ports, places_here, ports_here
from ops.services.servers import ALWAYS, NAMES
from ops.services.services import Services
from ops.services.tools import coprocessor, find_tools

_MIB = 1 << 20


def main(words: list[str] | None = None) -> int:
    options = _parser().parse_args(words)
    try:
        return _run(options)
    except ServicesError as error:
        sys.stderr.write(f"services: {error}\n")
        return 7
    except BrokenPipeError:  # `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        sys.stderr.write("services: interrupted; started servers keep running, `make services` finds them again\n")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ops.services", description="Kafka, HBase, Redis, MariaDB and PostgreSQL on this machine."
    )
    parser.add_argument(
        "--dir", help="folder of these servers (default: .services of the checkout, or IOTHUB_SERVICES_DIR)"
    )
    parser.add_argument(
        "--shift", type=int, help="added to every port, for a second set of servers (default: as at the last start)"
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, sentence in (
        ("up", "start the servers that do not run, wait until each answers"),
        ("down", "stop in good order"),
        ("restart", "stop in good order and start again"),
    ):
        several = verbs.add_parser(verb, help=sentence)
        several.add_argument(
            "names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default: all but the gateway"
        )
    for verb, sentence in (
        ("kill", "kill one, as a crash would (SIGKILL)"),
        ("pause", "pause one (SIGSTOP)"),
        ("resume", "resume a paused one (SIGCONT)"),
        ("log", "show the last lines of a server's log"),
    ):
        verbs.add_parser(verb, help=sentence).add_argument("name", choices=NAMES)
    tool = verbs.add_parser("java", help="run a Java class from a server's jars with its settings")
    tool.add_argument("--apart", action="store_true", help="in a JVM of its own, although HBase's would do it")
    tool.add_argument("name", choices=NAMES)
    tool.add_argument("main", nargs=argparse.REMAINDER, metavar="CLASS [ARGUMENT...]")
    verbs.add_parser("status", help="show what runs; exit code 0 if all but the gateway run, else 7")
    verbs.add_parser("wipe", help="stop all and remove their data")
    verbs.add_parser("fetch", help="fetch and build what a start needs; start nothing")
    verbs.add_parser("build", help="build the iothub-hbase jar")
    return parser


def _run(options: argparse.Namespace) -> int:
    places = Places(Path(options.dir).resolve()) if options.dir else places_here()
    ports = Ports(options.shift) if options.shift is not None else ports_here(places)
    services = Services(places, ports, say=_say)
    verb: str = options.verb
    if verb in ("up", "restart"):
        began = time.monotonic()
        (services.up if verb == "up" else services.restart)(*options.names)
        _print_addresses(services, time.monotonic() - began)
    elif verb == "down":
        services.down(*options.names)
    elif verb in ("kill", "pause", "resume"):
        {"kill": services.kill, "pause": services.pause, "resume": services.resume}[verb](options.name)
    elif verb == "log":
        _say(services.log_tail(options.name))
    elif verb == "java":
        return services.java(options.name, *options.main, is_apart=options.apart)
    elif verb == "fetch":
        services.fetch()
    elif verb == "wipe":
        services.wipe()
    elif verb == "build":
        _say(f"built {coprocessor(find_tools(_say), _say, is_forced=True)}")
    else:
        return _status(services)
    return 0


def _print_addresses(services: Services, took_s: float) -> None:
    for what, address in services.addresses():
        _say(f"{what:28}{address}")
    _say(f"up after {took_s:.1f} s; a hub on them: iothub --data-dir DIR --config {services.places.hub_settings} serve")


def _status(services: Services) -> int:
    reports = services.reports()
    for report in reports:
        rest = (
            f"  process {report.pid}, {report.resident_bytes / _MIB:.0f} MiB, {report.cpu_s:.0f} s of CPU"
            if report.pid
            else ""
        )
        _say(f"{report.name:11}{report.state}{rest}")
    for what, address in services.addresses():
        _say(f"{what:28}{address}")
    return 0 if all(report.state == "running" for report in reports if report.name in ALWAYS) else 7


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
