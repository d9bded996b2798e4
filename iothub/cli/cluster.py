"""`iothub cluster`: how the hubs of an installation are linked, draining of one of them, and the certificates that they show each other.

Knows no link: `status`, `drain`, `resume` and `evict` ask the running hub, the others work on files.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from iothub.base.errors import ConfigError, ConflictError, IotHubError, NotFoundError, UnavailableError
from iothub.cli import audit, output
from iothub.cli.app import TIMEOUT, App, destroying_verb, noun, verb
from iothub.cli.files import NamedPath, cannot_be_read, write_new_file
from iothub.cli.numbers import WholeNumber
from iothub.cli.progress import Progress
from iothub.config.datadir import DataDir
from iothub.config.workers import node_numbers
from iothub.peers import link_files
from iothub.records.admin_commands import Json, Verb

if TYPE_CHECKING:
    from iothub.peers.certificates import Pem

command = noun("cluster", "The hubs of an installation: links, certificates, and taking one out of service.")

_COLUMNS = ("node", "name", "address", "version", "state", "clients", "round_trip_ms", "unacknowledged_bytes", "cause")
_NODE = ("node", "name", "address", "version", "state", "clients")
_CLIENTS_PER_S = 500
_MOST_PER_S = 1_000_000
_LEAST_S = 0.1  # that a hub is asked for, when --timeout is over
_RATE = re.compile(r"([0-9]{1,9})(?:/s)?")
_DAYS, _NODE_NUMBER = WholeNumber(1, 3650), WholeNumber(0, 65535)
_FORCED = click.option("--force", "is_forced", is_flag=True, help="Replace existing files.")


@verb(command, "status")
def status(app: App) -> None:
    """List the hubs of the accounts and how this one is linked to each. The hub must run.

    The state is `up`, `joining` (both for this hub itself, too), `draining`, `down`, `refused`, `gone` or `left`: a hub that joins serves nobody yet,
    one that has left was stopped, and without one that is gone the others go on. `clients` is empty for a hub that does not answer; `cause` says
    why there is no link, or why it is gone.

    Example:
      iothub --data-dir ./hub cluster status -o json
    """
    app.rows(app.hub.ask(Verb.CLUSTER_STATUS, "", {}).rows, *_COLUMNS)


@verb(command, "nodes")
def nodes(app: App) -> None:
    """List the hubs of the accounts by node number, each worker as one. A hub must run here.

    `iothub cluster status` shows how this hub is linked to each, and what the states mean.

    Example:
      iothub --data-dir ./hub cluster nodes
    """
    rows = [{name: row.get(name) for name in _NODE} for row in app.hub.ask(Verb.CLUSTER_STATUS, "", {}).rows]
    app.rows(rows, *_NODE)


def _node_or_self(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the hub that it is for: NODE, or --self."""
    node = click.argument("node", type=_NODE_NUMBER, required=False)
    own = click.option(
        "--self", "is_self", is_flag=True, help="The hub of this data directory with all its workers, in place of NODE."
    )
    return node(own(function))


def _rate(_context: click.Context, parameter: click.Parameter, text: str) -> int:
    """Raises BadParameter: it is no rate."""
    match = _RATE.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= _MOST_PER_S:
        raise click.BadParameter(
            f'{text!r}: expected clients per second, "1/s" to "{_MOST_PER_S}/s", such as "200/s"', param=parameter
        )
    return int(match[1])


@verb(command, "drain")
@_node_or_self
@click.option(
    "--rate",
    "rate_per_s",
    metavar="N/s",
    default=f"{_CLIENTS_PER_S}/s",
    show_default=True,
    callback=_rate,
    help="How many clients are asked to go, per second.",
)
@click.option(
    "--no-wait", is_flag=True, help="Return at once; `iothub cluster status` shows how many clients are left."
)
@TIMEOUT
def drain(app: App, node: int | None, is_self: bool, rate_per_s: int, no_wait: bool, timeout_s: float | None) -> None:
    """Let no client connect to a hub any more, and ask those that are connected to go to another one. A hub must run here.

    NODE is the node number of any hub that is up: `iothub cluster status` shows them. The hub closes its listeners, `/readyz` answers 503, and
    clients get DISCONNECT 0x9C "Use another server" (5.0) or are closed (3.x). No Will is published, and persistent sessions stay.

    The command waits until no client is left. The hub continues if it is interrupted or --timeout is over (exit code 7). Run it again to change
    the rate, or to wait. `iothub cluster resume` or a restart ends the drain.

    Examples:
      iothub --data-dir ./hub cluster drain 2
      iothub --data-dir ./hub cluster drain --self --rate 50/s --timeout 10m
    """
    nodes = _chosen(app, node, is_self=is_self, verb="drain")
    deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def ask(number: int | None, progress: Progress | None, *, is_waited: bool) -> Json:
        left_s = None if deadline is None else max(deadline - time.monotonic(), _LEAST_S)
        argument = {"node": number, "rate_per_s": rate_per_s, "is_waited": is_waited}
        return app.change_hub("", Verb.CLUSTER_DRAIN, argument, left_s, progress)

    if len(nodes) > 1:  # none of them sends its clients to another one of them, once all are draining
        for number in nodes:
            ask(number, None, is_waited=False)
    with Progress("clients gone") as progress:
        answers = [ask(number, progress, is_waited=not no_wait) for number in nodes]
    for answer in answers:
        audit.note(app, "", "node", str(answer["node"]), "drained", rate_per_s=rate_per_s)
    left, closed = (sum(int(str(answer[name])) for answer in answers) for name in ("clients", "closed"))
    hubs, verb_form, they = _named(answers)
    if left:
        text = f"{hubs} {verb_form} draining: {output.counted(left, 'client')} left; `iothub cluster status` shows how many"
    else:
        text = f"{hubs} {verb_form} drained: {output.counted(closed, 'client')} asked to go, none is left; {they} may be stopped"
    app.done(text, {**_who(answers), "clients": left, "closed": closed})


@verb(command, "resume")
@_node_or_self
def resume(app: App, node: int | None, is_self: bool) -> None:
    """End the drain of a hub: its listeners open again. A hub must run here.

    Examples:
      iothub --data-dir ./hub cluster resume 2
      iothub --data-dir ./hub cluster resume --self
    """
    nodes = _chosen(app, node, is_self=is_self, verb="resume")
    answers = [app.change_hub("", Verb.CLUSTER_RESUME, {"node": number}) for number in nodes]
    for answer in answers:
        audit.note(app, "", "node", str(answer["node"]), "resumed")
    hubs, verb_form, _ = _named(answers)
    was_draining = any(answer["was_draining"] for answer in answers)
    if was_draining:
        text = f"{hubs} {'let' if len(answers) > 1 else 'lets'} clients in again"
    else:
        text = f"{hubs} {'were' if verb_form == 'are' else 'was'} not draining; nothing was changed"
    app.done(text, {**_who(answers), "was_draining": was_draining})


@destroying_verb(command, "evict", dry_run="Show which hub would be evicted; change nothing.")
@click.argument("node", type=_NODE_NUMBER)
def evict(app: App, node: int, is_dry_run: bool) -> None:
    """Declare another hub gone, so that the others go on without it. A hub must run here.

    For a hub that is dead or hangs and is waited for all the same. NODE is its node number; it need not answer. The others go on without it 4.5 s
    later: SUBACKs that wait for it leave, and one of them takes over its sessions. A hub that still runs closes its clients and begins again: to
    take one out of service, use `iothub cluster drain` and stop it.

    For a hub that is gone already and will not come back it clears the alarm `peer_gone` or `peer_expelled` at every hub.

    Examples:
      iothub --data-dir ./hub cluster evict 2 --yes
      iothub --data-dir ./hub cluster evict 2 --dry-run
    """
    if is_dry_run:
        found = next((row for row in app.hub.ask(Verb.CLUSTER_STATUS, "", {}).rows if row["node"] == node), None)
        if found is None:
            raise NotFoundError(f"there is no hub {node}; `iothub cluster status` shows the hubs")
        text = f"would evict hub {found['name']} ({node}), whose state is {found['state']}"
        app.done(text, {"node": node, "name": found["name"], "state": found["state"], "is_evicted": False})
        return
    app.hub.require()
    app.confirm(f"Declare hub {node} gone? If it still runs, its clients are closed.")
    answer = app.change_hub("", Verb.CLUSTER_EVICT, {"node": node})
    audit.note(app, "", "node", str(node), "evicted")
    hub = f"hub {answer['name']} ({node})"
    if answer["has_left"]:
        text = f"{hub} was stopped, and the others go on without it; nothing was changed"
    elif answer["was_gone"]:
        text = f"{hub} is gone already: its alarm is cleared"
    else:
        text = f"{hub} is evicted: the other hubs go on without it in 4.5 s"
    app.done(
        text,
        {"node": node, "name": answer["name"], "was_gone": answer["was_gone"], "is_evicted": not answer["has_left"]},
    )


def _chosen(app: App, node: int | None, *, is_self: bool, verb: str) -> list[int | None]:
    """Return the node numbers; None: the hub that runs here, without workers. Raises ConfigError: none was named, or several."""
    if (node is None) != is_self:
        raise ConfigError(f"expected one hub: iothub cluster {verb} NODE, or --self for the hub of this data directory")
    if is_self and app.is_remote:
        raise ConfigError(f"--self is the hub of a data directory here; with a context: iothub cluster {verb} NODE")
    workers = (app.data_dir.read_hub() or {}).get("nodes") if is_self else None
    return list(cast("list[int]", workers)) if isinstance(workers, list) else [node]


def _named(answers: Sequence[Json]) -> tuple[str, str, str]:
    """Return the hubs' names, the verb and the pronoun of a sentence about them."""
    names = [f"{answer['name']} ({answer['node']})" for answer in answers]
    if len(names) == 1:
        return f"hub {names[0]}", "is", "it"
    return f"hubs {', '.join(names[:-1])} and {names[-1]}", "are", "they"


def _who(answers: Sequence[Json]) -> dict[str, object]:
    """Return the same for a script: `node` and `name` are lists if there are several."""
    if len(answers) == 1:
        return {name: answers[0][name] for name in ("node", "name")}
    return {name: [answer[name] for answer in answers] for name in ("node", "name")}


@verb(command, "init-ca")
@click.argument("directory", type=NamedPath(), required=False)
@click.option("--days", type=_DAYS, default=3650, show_default=True, help="Days of validity.")
@_FORCED
def init_ca(app: App, directory: Path | None, days: int, is_forced: bool) -> None:
    """Create the authority that signs the certificates of all hubs: DIRECTORY/ca.pem and DIRECTORY/ca-key.pem.

    DIRECTORY is `cluster` in the data directory by default. One authority serves the whole installation: keep ca-key.pem off the other machines, for
    whoever has it can add a hub.

    Examples:
      iothub --data-dir ./hub cluster init-ca
      iothub cluster init-ca ./authority
    """
    from iothub.peers import certificates

    target = directory or app.data_dir.cluster_files
    pem = certificates.make_authority(days)
    files = {
        target / link_files.CA_KEY_FILE: (pem.key, 0o600),
        target / link_files.CA_FILE: (pem.certificate, 0o644),
    }
    _write(target, files, is_forced=is_forced)
    where = "" if directory is None else f" --ca {directory}"
    app.done(
        f"wrote {target / link_files.CA_FILE} and {target / link_files.CA_KEY_FILE}\n"
        f"next: iothub cluster issue NODE{where}, once for each hub",
        {
            "name": "init-ca",
            "ca_file": str(target / link_files.CA_FILE),
            "ca_key_file": str(target / link_files.CA_KEY_FILE),
        },
    )


@verb(command, "issue")
@click.argument("node", type=_NODE_NUMBER)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="A host name or address for tools that check it (repeatable). Hubs check NODE.",
)
@click.option("--ca", type=NamedPath(), help="Directory of the authority. Default: `cluster` in the data directory.")
@click.option(
    "--out",
    type=NamedPath(),
    help="Directory of the files. Default: `cluster` in the data directory, if NODE is this hub; `cluster/wK` for its worker K from 2 on.",
)
@click.option("--days", type=_DAYS, default=365, show_default=True, help="Days of validity.")
@_FORCED
def issue(
    app: App, node: int, hosts: tuple[str, ...], ca: Path | None, out: Path | None, days: int, is_forced: bool
) -> None:
    """Issue the certificate of the hub with node.number NODE: ca.pem, cert.pem and key.pem.

    Copy the three files to `cluster` in the data directory of that hub. A certificate that is issued anew replaces the old one after `iothub config
    reload`.

    Examples:
      iothub --data-dir ./hub cluster issue 0
      iothub --data-dir ./hub cluster issue 2 --out ./node-2 --host hub-2.example.com
    """
    from iothub.peers import certificates

    target = out or _own_directory(app, node)
    authority = _authority(ca or app.data_dir.cluster_files)
    pem = certificates.issue(authority, node, hosts, days)
    files = {
        target / link_files.KEY_FILE: (pem.key, 0o600),
        target / link_files.CERTIFICATE_FILE: (pem.certificate, 0o644),
    }
    ca_file = target / link_files.CA_FILE
    if not ca_file.exists() or ca_file.read_bytes() != authority.certificate:
        files[ca_file] = (authority.certificate, 0o644)
    _write(target, files, is_forced=is_forced)
    app.done(
        f"wrote the certificate of node {node} to {target}",
        {
            "node": node,
            "certificate_file": str(target / link_files.CERTIFICATE_FILE),
            "days": days,
            "hosts": list(hosts),
        },
    )


def _own_directory(app: App, node: int) -> Path:
    """Raises ConfigError: the certificate is another hub's."""
    numbers = node_numbers(app.loaded.config, app.data_dir)
    if node not in numbers:
        own = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        raise ConfigError(
            f"this hub is node {own}: for node {node} name a directory with --out, and copy it to that hub"
        )
    return DataDir.of_worker(app.data_dir.path, node - numbers[0] + 1).cluster_files


def _authority(directory: Path) -> Pem:
    from iothub.peers import certificates

    try:
        return certificates.Pem(
            (directory / link_files.CA_FILE).read_bytes(), (directory / link_files.CA_KEY_FILE).read_bytes()
        )
    except OSError as error:
        raise _with_hint(cannot_be_read(error.filename, error)) from None


def _with_hint(error: IotHubError) -> IotHubError:
    return type(error)(f"{error}; `iothub cluster init-ca` makes the authority, --ca names its directory")


def _write(directory: Path, files: dict[Path, tuple[bytes, int]], *, is_forced: bool) -> None:
    """Write all, or nothing if one exists already. Raises ConflictError, UnavailableError."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = next((path for path in files if path.exists()), None)
        if taken is not None and not is_forced:
            raise ConflictError(f"{taken} exists already: use --force to replace it")
        for path, (content, mode) in files.items():
            write_new_file(path, content, mode, is_forced=is_forced)
    except OSError as error:
        raise UnavailableError(f"{error.filename}: cannot be written: {error.strerror}") from None
