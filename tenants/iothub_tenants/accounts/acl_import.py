"""Adds many access rules at once, from CSV or from an ACL file of Mosquitto: all of them or, with the bad lines named, none.

Knows no path. One transaction and one line in the change log, however many rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection, insert, select

from iothub.base.errors import ConfigError, NotFoundError
from iothub_services.auth.port import Action, Effect, Scope
from iothub_tenants.accounts import acl_rules, tenants
from iothub_tenants.accounts.csv_rows import NOT_UTF_8, BadLinesError, csv_rows, header_of, is_foreign
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.accounts.tables import acl_rule as table
from iothub_tenants.identity import shown

COLUMNS = ("subject", "effect", "action", "filter")
NUMBER = "id"  # the column of `acl list` that a new rule has no use for
_MARKED = re.compile(r"^'(?=[=+\-@\t\r])")
_KEY = ("scope", "subject", "effect", "action", "filter")  # of a row of the table: what makes two rules the same
_ACTIONS = {"read": Action.SUBSCRIBE, "write": Action.PUBLISH, "readwrite": Action.BOTH}
_PATTERNS = {"%u": "{device}", "%c": "{clientid}"}


@dataclass(frozen=True, slots=True)
class WantedRule:
    """One rule of a file."""

    scope: Scope
    subject: str
    effect: Effect
    action: Action
    filter: str

    def key(self) -> tuple[str, ...]:
        return self.scope.value, self.subject, self.effect.value, self.action.value, self.filter


@dataclass(slots=True)
class ParsedRules:
    """The rules of a file with their lines, and what is wrong by line."""

    rules: dict[WantedRule, int] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)

    def add(self, line: int, subject: str, effect: Effect, action: Action, topic_filter: str) -> None:
        try:
            acl_rules.check_filter(topic_filter)
        except ConfigError as error:
            self.faults[line] = str(error)
            return
        scope, name = acl_rules.split_subject(subject)
        self.rules.setdefault(WantedRule(scope, name, effect, action, topic_filter), line)


@dataclass(frozen=True, slots=True)
class Imported:
    """How many rules are new, and how many were there already."""

    added: int
    present: int


def import_file(
    store: AccountStore, tenant: str, lines: Iterable[str], form: str, *, is_dry_run: bool = False
) -> Imported:
    """Add the rules of a file that are not there yet. `form`: one of FORMS. Raises as `import_rules`."""
    return import_rules(store, tenant, FORMS[form](lines), is_dry_run=is_dry_run)


def read_csv(lines: Iterable[str]) -> ParsedRules:
    """Read CSV with the columns subject,effect,action,filter, in any order, or what `acl list -o csv` writes.

    That has the rules' numbers, and an apostrophe before a text that a spreadsheet would take for a formula.
    """
    parsed = ParsedRules()
    rows = csv_rows(lines, parsed.faults)
    line, columns = header_of(rows)
    is_listed = NUMBER in columns
    if sorted(column for column in columns if column != NUMBER) != sorted(COLUMNS):
        parsed.faults = parsed.faults or {line: f"not the header: expected {','.join(COLUMNS)}"}
        return parsed
    for number, row in rows:
        if len(row) == len(columns):
            cells = [_MARKED.sub("", cell) for cell in row] if is_listed else row
            _add_row(parsed, number, dict(zip(columns, cells, strict=True)))
        else:
            parsed.faults[number] = f"{len(row)} columns, expected {len(columns)}"
    return parsed


def read_mosquitto(lines: Iterable[str]) -> ParsedRules:
    """Read an ACL file of Mosquitto: `topic` below `user NAME` is a rule of that device, `pattern` one of all devices."""
    parsed = ParsedRules()
    user: str | None = None
    for number, raw in enumerate(lines, 1):
        text = raw.strip().removeprefix("\ufeff")
        if not text or raw.startswith("#"):
            continue
        word, _, rest = text.partition(" ")
        if is_foreign(text):
            parsed.faults[number] = NOT_UTF_8
        elif word == "user" and rest.strip():
            user = rest.strip()
            if acl_rules.split_subject(user)[0] is not Scope.DEVICE:  # a client's name to Mosquitto
                parsed.faults[number] = (
                    f"{shown(user)} is not a device's name: here it would be a rule for many devices"
                )
        elif word == "topic" and user is None:
            parsed.faults[number] = (
                "a topic before the first user is for anonymous clients, which are not let in here: delete it"
            )
        elif word in ("topic", "pattern") and rest.strip():
            subject = "*" if word == "pattern" or user is None else user
            _add_access(parsed, number, subject, rest.strip(), is_pattern=word == "pattern")
        else:
            parsed.faults[number] = f"{shown(word)}: expected user, topic or pattern, and a value"
    return parsed


def import_rules(store: AccountStore, tenant: str, parsed: ParsedRules, *, is_dry_run: bool = False) -> Imported:
    """Add the rules that are not there yet.

    Raises:
        NotFoundError: no such tenant.
        ConflictError: the tenant is being deleted.
        BadLinesError: lines are malformed, or name devices or groups that do not exist; nothing was written.
    """
    if is_dry_run:
        with store.read() as connection:
            fresh = _fresh(connection, tenants.living(connection, tenant), parsed)
        return Imported(len(fresh), len(parsed.rules) - len(fresh))
    with store.write() as writer:
        owner = tenants.living(writer.connection, tenant)
        fresh = _fresh(writer.connection, owner, parsed)
        whose = {"tenant_id": owner.id, "created_ms": writer.now_ms}
        if fresh:
            rows = [whose | dict(zip(_KEY, rule.key(), strict=True)) for rule in fresh]
            writer.connection.execute(insert(table), rows)
            writer.changed(owner.id, ChangeKind.ACL, "*", after={"done": "imported", "rules": len(rows)})
    return Imported(len(fresh), len(parsed.rules) - len(fresh))


FORMS = {"csv": read_csv, "mosquitto": read_mosquitto}
"""How a file can be written, and what reads it."""

# --- private


def _add_row(parsed: ParsedRules, line: int, cells: dict[str, str]) -> None:
    try:
        effect = Effect(cells["effect"])
    except ValueError:
        parsed.faults[line] = f"{shown(cells['effect'])} is not an effect: expected allow or deny"
        return
    try:
        action = acl_rules.parse_action(cells["action"])
    except ConfigError as error:
        parsed.faults[line] = str(error)
        return
    parsed.add(line, cells["subject"], effect, action, cells["filter"])


def _add_access(parsed: ParsedRules, line: int, subject: str, rest: str, *, is_pattern: bool) -> None:
    """Read `[read|write|readwrite|deny] TOPIC`; a single word is a topic, for both."""
    word, blank, topic = rest.partition(" ")
    if not blank:
        word, topic = "readwrite", rest
    elif word not in (*_ACTIONS, "deny"):
        parsed.faults[line] = (
            f"{shown(word)} is not an access: expected read, write, readwrite or deny before the topic"
        )
        return
    levels = topic.strip().split("/")
    if set(levels) & set(acl_rules.PLACEHOLDERS):  # letters to Mosquitto, a device's name here
        parsed.faults[line] = f"{shown(topic)}: {' and '.join(acl_rules.PLACEHOLDERS)} are placeholders here"
        return
    if is_pattern:
        levels = [_PATTERNS.get(level, level) for level in levels]
        if any("%u" in level or "%c" in level for level in levels):
            parsed.faults[line] = f"{shown(topic)}: %u and %c must be alone in their level"
            return
    effect = Effect.DENY if word == "deny" else Effect.ALLOW
    parsed.add(line, subject, effect, _ACTIONS.get(word, Action.BOTH), "/".join(levels))


def _fresh(connection: Connection, owner: tenants.Tenant, parsed: ParsedRules) -> list[WantedRule]:
    """Return the rules that are not in the table. Raises BadLinesError."""
    faults = dict(parsed.faults)
    known: dict[tuple[Scope, str], str] = {}  # what is wrong with a subject; empty: nothing
    for rule, line in parsed.rules.items():
        subject = (rule.scope, rule.subject)
        if subject not in known:
            known[subject] = _fault_of(connection, owner, *subject)
        if known[subject]:
            faults[line] = known[subject]
    if faults:
        raise BadLinesError(faults)
    columns = [table.c[name] for name in _KEY]
    there = {tuple(row) for row in connection.execute(select(*columns).where(table.c.tenant_id == owner.id))}
    return [rule for rule in parsed.rules if rule.key() not in there]


def _fault_of(connection: Connection, owner: tenants.Tenant, scope: Scope, name: str) -> str:
    try:
        acl_rules.require_subject(connection, owner, scope, name)
    except NotFoundError as error:
        return str(error)
    return ""
