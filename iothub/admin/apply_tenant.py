"""What brings one tenant to the state that a file describes: its settings, groups, devices, rules and limits.

Knows the form of one entry of the file; plans and other entries are `iothub.admin.apply`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from iothub.admin import apply_form as form
from iothub.admin.apply_checks import Names, Plans, placed, require_once
from iothub.admin.apply_steps import Step, silent
from iothub.base.errors import ConfigError
from iothub_tenants.identity import shown

if TYPE_CHECKING:
    from iothub.config.sections import Tenancy
    from iothub_tenants.accounts.devices import NewSecret
    from iothub_tenants.accounts.store import AccountStore

_PARTS = ("tenant", "groups", "devices", "rules", "limits")
_SETTINGS: dict[str, type] = {
    "display_name": str,
    "plan": str,
    "client_id_policy": str,
    "is_closed_on_denied_publish": bool,
    "is_qos0_queued": bool,
    "allowed_networks": list,
    "denied_networks": list,
}
_AT_CREATION = ("display_name", "plan", "client_id_policy")
_SWITCHES: dict[str, type] = {"is_protected": bool}
_OF_DEVICE: dict[str, type] = {"is_enabled": bool, "groups": list}
_RULE_WORDS = 4


class WantedTenant:
    """One entry of the file, and the tenant as it is: as `tenant export` shows it; nothing, if there is none."""

    def __init__(self, store: AccountStore, tenancy: Tenancy, given: form.Row, where: str) -> None:
        from iothub_tenants.accounts import tenants, transfer

        form.require_known(given, (*_PARTS, *form.NOT_APPLIED, *form.OF_EXPORT), where)
        form.require_readable(given, where)
        self._store, self._tenancy, self._given, self._where = store, tenancy, given, where
        self._wanted = form.mapping(given.get("tenant"), f"{where}.tenant")
        form.require_known(self._wanted, ("name", "state", "is_protected", *_SETTINGS), f"{where}.tenant")
        self.name = form.text(self._wanted, "name", f"{where}.tenant")
        form.require_kinds(self._wanted, _SETTINGS | _SWITCHES, f"{where}.tenant")
        form.require_kinds(given, {"groups": list}, where)
        self._is_new = bool(tenants.missing(store, [self.name]))
        self._has: form.Row = {} if self._is_new else transfer.export_tenant(store, self.name)
        self._is_foreign = given.get("pepper", transfer.fingerprint(store.pepper)) != transfer.fingerprint(store.pepper)

    def steps(self, plans: Plans, *, prunes: bool) -> Iterator[Step]:
        """What others stand on comes first; what is deleted, last. Raises as the first step that would fail."""
        yield from self._settings()
        yield from self._groups()
        yield from self._devices()
        yield from self._rules()
        yield from self._limits()
        if prunes and not self._is_new:
            yield from self._pruned()
        self._check(plans, prunes=prunes)

    def _check(self, plans: Plans, *, prunes: bool) -> None:
        """Raise if a step would fail: the form of the file is checked already."""
        from iothub_tenants.accounts import tenants

        where, given, names = self._where, self._given, Names(self._has)
        devices = [self._device(place, row) for place, row in enumerate(form.listed(given, "devices", where))]
        rules, limits = self._wanted_rules(), self._wanted_limits()
        with placed(f"{where}.tenant"):
            if self._is_new:
                tenants.require_free(self._store, self.name, frozenset(self._tenancy.reserved))
            if self._is_new or "plan" in self._wanted:
                plans.require(self._wanted.get("plan") or (self._tenancy.default_plan if self._is_new else ""))
            _check_settings(self._wanted)
        if "groups" in given:
            names.set_groups(form.listed(given, "groups", where), f"{where}.groups", prunes=prunes)
        if "devices" in given:
            names.set_devices([row["name"] for row in devices], f"{where}.devices", prunes=prunes)
        for place, row in enumerate(devices):
            for group in row.get("groups", ()):
                names.require_group(group, f"{where}.devices[{place}].groups")
        to_come = self._streams_to_come()
        for place, rule in enumerate(rules):
            if rule[1] not in to_come:
                names.require_subject(rule[1], f"{where}.rules[{place}]")
        for device in filter(None, limits):
            names.require_device(device, f"{where}.limits")

    def _step(self, action: str, what: str, name: str, change: str, run: Callable[[], object]) -> Step:
        return Step(action, what, self.name, name, change, silent(run))

    # --- the tenant

    def _settings(self) -> Iterator[Step]:
        from iothub.admin.tenants import create_tenant
        from iothub_tenants.accounts import tenants

        wanted, store, name = self._wanted, self._store, self.name
        if self._is_new:
            make = partial(
                create_tenant,
                store,
                self._tenancy,
                name,
                plan=wanted.get("plan"),
                is_closed="rules" in self._given,
                display_name=wanted.get("display_name", ""),
                client_id_policy=wanted.get("client_id_policy"),
            )
            yield self._step(
                "create", "tenant", name, f"plan: {wanted.get('plan') or self._tenancy.default_plan}", make
            )
        has = self._has.get("tenant", {})
        differing = {key: wanted[key] for key in _SETTINGS if key in wanted and has.get(key) != wanted[key]}
        if self._is_new:
            differing = {key: value for key, value in differing.items() if key not in _AT_CREATION and value}
        if differing:
            given: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in differing.items()
            }
            change = "; ".join(f"{key}: {has.get(key, 'default')} -> {value}" for key, value in differing.items())
            set_them = partial(tenants.update, store, name, tenants.Settings(**given))
            yield self._step("update", "tenant", name, change, set_them)
        yield from self._switches(has)

    def _switches(self, has: form.Row) -> Iterator[Step]:
        from iothub_tenants.accounts import tenants

        state, is_protected = self._wanted.get("state"), self._wanted.get("is_protected")
        if state not in (None, "active", "suspended"):
            raise ConfigError(f"{self._where}.tenant.state: expected active or suspended")
        if state is not None and state != has.get("state", "active"):
            turn = tenants.suspend if state == "suspended" else tenants.resume
            yield self._step("update", "tenant", self.name, f"state: {state}", partial(turn, self._store, self.name))
        if is_protected is not None and is_protected != has.get("is_protected", False):
            turn = tenants.protect if is_protected else tenants.unprotect
            change = f"is_protected: {is_protected}"
            yield self._step("update", "tenant", self.name, change, partial(turn, self._store, self.name))

    # --- groups and devices

    def _groups(self) -> Iterator[Step]:
        from iothub_tenants.accounts import groups

        has = self._has.get("groups", ())
        for name in form.listed(self._given, "groups", self._where):
            if name not in has:
                yield self._step("create", "group", name, "", partial(groups.create, self._store, self.name, name))

    def _devices(self) -> Iterator[Step]:
        has = {row["name"]: row for row in self._has.get("devices", ())}
        for place, given in enumerate(form.listed(self._given, "devices", self._where)):
            where = f"{self._where}.devices[{place}]"
            row = self._device(place, given)
            name = row["name"]
            known = has.get(name)
            if known is None:
                stored = self._credential(row, where)
                kind = "generated" if stored is None else stored.form.value
                make = partial(self._create, row, stored)
                yield Step("create", "device", self.name, name, f"credential: {kind}", make)
            else:
                yield from self._changed_device(row, known, where)

    def _device(self, place: int, given: object) -> form.Row:
        """Return one of the list `devices`. Raises ConfigError."""
        where = f"{self._where}.devices[{place}]"
        row = {"name": given} if isinstance(given, str) else form.mapping(given, where)
        form.require_known(row, ("name", "credential_kind", "credential", "is_enabled", "groups"), where)
        form.require_kinds(row, _OF_DEVICE, where)
        form.text(row, "name", where)
        return row

    def _create(self, row: form.Row, stored: Any) -> NewSecret | None:
        from iothub_tenants.accounts import devices

        name, with_token = row["name"], stored is not None
        made = devices.create(self._store, self.name, name, groups=row.get("groups", ()), with_token=with_token)
        if stored is not None and stored != devices.BY_TOKEN:
            devices.set_credential(self._store, self.name, name, stored)
        if row.get("is_enabled") is False:
            devices.disable(self._store, self.name, name)
        return made if stored is None else None

    def _credential(self, row: form.Row, where: str) -> Any:
        """Return what the file has, ready to be stored; None: a secret is to be generated. Raises ConfigError."""
        from iothub_tenants.accounts import device_import, devices

        kind = row.get("credential_kind", "generated")
        if kind == "jwt":
            return devices.BY_TOKEN
        if kind == "generated" and (self._is_foreign or not row.get("credential")):
            return None
        given = {"name": row["name"], "credential_kind": kind, "credential": form.text(row, "credential", where)}
        return device_import.credential(given, where, is_foreign=self._is_foreign)

    def _changed_device(self, row: form.Row, known: form.Row, where: str) -> Iterator[Step]:
        from iothub_tenants.accounts import devices, groups

        name, store, tenant = known["name"], self._store, self.name
        stored = self._credential(row, where) if "credential_kind" in row else None
        if stored is not None and (stored.form.value, stored.value) != (known["credential_kind"], known["credential"]):
            run = partial(devices.set_credential, store, tenant, name, stored)
            change = f"credential: {known['credential_kind']} -> {stored.form.value}"
            yield self._step("update", "device", name, change, run)
        is_enabled = row.get("is_enabled", known["is_enabled"])
        if is_enabled != known["is_enabled"]:
            turn = devices.enable if is_enabled else devices.disable
            yield self._step("update", "device", name, f"is_enabled: {is_enabled}", partial(turn, store, tenant, name))
        if "groups" in row:
            for group in row["groups"]:
                if group not in known["groups"]:
                    join = partial(groups.join, store, tenant, group, name)
                    yield self._step("update", "device", name, f"joins {group}", join)
            for group in known["groups"]:
                if group not in row["groups"]:
                    leave = partial(groups.leave, store, tenant, group, name)
                    yield self._step("update", "device", name, f"leaves {group}", leave)

    # --- rules and limits

    def _wanted_rules(self) -> list[tuple[str, str, str, str]]:
        from iothub_services.auth.port import Scope
        from iothub_tenants.accounts import acl_rules

        found = []
        for place, given in enumerate(form.listed(self._given, "rules", self._where)):
            where = f"{self._where}.rules[{place}]"
            if isinstance(given, str):
                words = given.split(maxsplit=_RULE_WORDS - 1)
            else:
                row = form.mapping(given, where)
                form.require_known(row, ("scope", "subject", "effect", "action", "filter"), where)
                texts = {key: form.text(row, key, where, is_empty_allowed=key == "subject") for key in row}
                subject = texts.get("subject", "")
                if "scope" in texts:
                    scope = form.word(Scope, texts["scope"], f"{where}.scope")
                    joined = acl_rules.join_subject(scope, subject)
                    is_tenant = scope is Scope.TENANT
                    if (is_tenant and subject not in ("", "*")) or acl_rules.split_subject(joined)[0] is not scope:
                        expected = "none, a rule with the scope tenant is for all devices" if is_tenant else "a name"
                        raise ConfigError(f"{where}.subject: expected {expected}, not {shown(subject)}")
                    subject = joined
                missing = [name for name in ("effect", "action", "filter") if name not in texts]
                if missing:
                    raise ConfigError(f"{where}: expected {', '.join(missing)}, too")
                words = [texts.get("effect", ""), subject, texts.get("action", ""), texts.get("filter", "")]
            if len(words) < _RULE_WORDS or words[0] not in ("allow", "deny") or not all(words):
                raise ConfigError(
                    f"{where}: expected `allow|deny SUBJECT publish|subscribe|both FILTER`, not `{' '.join(words)}`; "
                    "in YAML a rule whose filter is `#` needs quotes, because ` #` begins a comment"
                )
            with placed(where):
                acl_rules.parse_action(words[2])
                acl_rules.check_filter(words[3])
            found.append((words[0], words[1], words[2], words[3]))
        require_once(map(" ".join, found), f"{self._where}.rules")
        return found

    def _streams_to_come(self) -> set[str]:
        """Return the subjects of streams that only the file has: their rules are left, as the streams are, until somebody has created them."""
        from iothub_tenants.accounts import streams

        names = [form.mapping(row, self._where).get("name") for row in form.listed(self._given, "streams", self._where)]
        there = {f"{streams.SUBJECT}{row['name']}" for row in self._has.get("streams", ())}
        devices = {_name(row) for row in (*self._has.get("devices", ()), *self._given.get("devices", ()))}
        return {f"{streams.SUBJECT}{name}" for name in names} - there - devices

    def _known_rules(self) -> dict[tuple[str, str, str, str], int]:
        from iothub_tenants.accounts import acl_rules

        rules = [] if self._is_new else acl_rules.list_all(self._store, self.name)
        return {(rule.effect.value, rule.subject, rule.action.value, rule.filter): rule.id for rule in rules}

    def _rules(self) -> Iterator[Step]:
        from iothub_services.auth.port import Effect
        from iothub_tenants.accounts import acl_rules

        known = self._known_rules()
        to_come = self._streams_to_come()
        for rule in self._wanted_rules():
            if rule not in known and rule[1] not in to_come:
                effect, subject, action, topic_filter = rule
                add = partial(acl_rules.add, self._store, self.name, subject, Effect(effect), action, topic_filter)
                yield self._step("create", "rule", " ".join(rule), "", add)

    def _wanted_limits(self) -> dict[str, dict[str, str]]:
        """Return limits by device (`""`: of the tenant) and name."""
        from iothub_services.quota.grammar import parse_limits
        from iothub_tenants.accounts import quotas

        found: dict[str, dict[str, str]] = {}
        texts: dict[str, list[str]] = {}
        for place, given in enumerate(form.listed(self._given, "limits", self._where)):
            where = f"{self._where}.limits[{place}]"
            row = {"value": given} if isinstance(given, str) else form.mapping(given, where)
            form.require_known(row, ("device", "value"), where)
            form.require_kinds(row, {"device": str}, where)
            limits = form.limits([form.text(row, "value", where)], where)
            if row.get("device"):
                with placed(where):
                    quotas.refuse_wider(parse_limits(list(limits.values())))
            found.setdefault(row.get("device", ""), {}).update(limits)
            texts.setdefault(row.get("device", ""), []).append(row["value"])
            with placed(where):
                parse_limits(texts[row.get("device", "")])
        return found

    def _known_limits(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for row in self._has.get("limits", ()):
            found.setdefault(row["device"], {}).update(form.limits([row["value"]], row["value"]))
        return found

    def _limits(self) -> Iterator[Step]:
        from iothub_tenants.accounts import quotas

        known = self._known_limits()
        for device, limits in self._wanted_limits().items():
            has = known.get(device, {})
            for key, text in limits.items():
                if not form.is_same_limit(has.get(key), text):
                    set_it = partial(quotas.set_limits, self._store, self.name, text, device or None)
                    action = "update" if key in has else "create"
                    change = f"{has[key]} -> {text}" if key in has else text
                    yield self._step(action, "limit", f"{device}:{key}" if device else key, change, set_it)

    # --- what the file does not name

    def _pruned(self) -> Iterator[Step]:
        """Devices and groups go with their rules and limits at once, whatever parts the file has: else a rule that denies would end before them.

        Each of these is a step that one can see, and nothing is left to do for it.
        """
        from iothub_tenants.accounts.acl_rules import GROUP_SIGN

        devices, groups = self._gone("devices"), self._gone("groups")
        yield from self._pruned_devices(devices)
        yield from self._pruned_groups(groups)
        yield from self._pruned_limits(set(devices))
        yield from self._pruned_rules({*devices, *(f"{GROUP_SIGN}{name}" for name in groups)})

    def _gone(self, part: str) -> list[str]:
        """Return the names that a list of the file leaves out."""
        names = {_name(each) for each in self._given.get(part, ())}
        return [name for name in map(_name, self._has[part]) if part in self._given and name not in names]

    def _pruned_limits(self, devices: Container[str]) -> Iterator[Step]:
        from iothub_services.quota.grammar import parse_limits
        from iothub_tenants.accounts import quotas

        wanted = self._wanted_limits()
        for device, limits in self._known_limits().items():
            for key, text in limits.items():
                name = f"{device}:{key}" if device else key
                if device in devices:
                    yield Step("delete", "limit", self.name, name, text, run=None)
                elif "limits" in self._given and key not in wanted.get(device, {}):
                    quota, left = form.left_of(key, wanted.get(device, {}))
                    unset = partial(quotas.change, self._store, self.name, parse_limits(left), [quota], device or None)
                    yield self._step("delete", "limit", name, text, unset)

    def _pruned_rules(self, subjects: Container[str]) -> Iterator[Step]:
        from iothub_tenants.accounts import acl_rules

        wanted = self._wanted_rules()
        for rule, number in self._known_rules().items():
            if rule[1] in subjects:
                yield Step("delete", "rule", self.name, " ".join(rule), "", run=None)
            elif "rules" in self._given and rule not in wanted:
                remove = partial(acl_rules.remove, self._store, self.name, number)
                yield self._step("delete", "rule", " ".join(rule), "", remove)

    def _pruned_devices(self, names: Sequence[str]) -> Iterator[Step]:
        from iothub_tenants.accounts import devices

        for name in names:
            yield self._step("delete", "device", name, "", partial(devices.delete, self._store, self.name, name))

    def _pruned_groups(self, names: Sequence[str]) -> Iterator[Step]:
        from iothub_tenants.accounts import groups

        for name in names:
            yield self._step("delete", "group", name, "", partial(groups.delete, self._store, self.name, name))


# --- private


def _name(given: Any) -> str:
    """Return the name of an entry of a list; it may be nothing but its name."""
    return str(given if isinstance(given, str) else given["name"])


def _check_settings(wanted: form.Row) -> None:
    """Raise ConfigError if a setting of a tenant is malformed."""
    from iothub_tenants.accounts import tenants

    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in wanted.items() if key in _SETTINGS
    }
    tenants.check_settings(tenants.Settings(**given))
