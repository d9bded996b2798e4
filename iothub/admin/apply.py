"""What brings tenants to the state that a file describes: the steps, each a call of the function that its command calls.

Knows no file and no terminal. The form is that of `tenant export`, each part of it optional: what a file does not name stays as it is.

Invariant: steps that were done are none the next time, so that an interrupted run is continued by the same command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from iothub.admin import apply_form as form
from iothub.admin.apply_checks import Plans, placed, require_once
from iothub.admin.apply_steps import Step, silent
from iothub.admin.apply_tenant import WantedTenant
from iothub.base.errors import InterruptedWorkError, IotHubError

if TYPE_CHECKING:
    from iothub.config.sections import Tenancy
    from iothub_tenants.accounts.store import AccountStore

OnSecret = Callable[[dict[str, str]], object]
OnProgress = Callable[[int, int], object]

_OF_PLAN: dict[str, type] = {"parent": str, "weight": int}


class Asked(NamedTuple):
    """What is to be applied."""

    document: object
    prunes: bool


def steps(store: AccountStore, tenancy: Tenancy, document: object, *, prunes: bool) -> list[Step]:
    """Return what is to be done, in this order. `prunes`: what a part that the file has does not name is deleted.

    A tenant is never deleted. What a step would refuse is refused here, as far as it can be known before.

    Raises:
        ConfigError: the document is not of this form, or a name or a value cannot be; the place is named.
        NotFoundError: it names what there is not, and what it does not make either.
        ConflictError: a tenant is being deleted, a plan cannot be set so.
    """
    from iothub_tenants.accounts import plans

    whole = form.mapping(document, "the file")
    if "tenant" in whole:
        whole = {"tenants": [whole]}
    form.require_known(whole, ("plans", "tenants", *form.OF_EXPORT), "the file")
    form.require_readable(whole, "the file")
    named = Plans(plans.list_all(store))
    found: list[Step] = []
    for place, given in enumerate(form.listed(whole, "plans", "the file")):
        found += _plan(store, named, form.mapping(given, f"plans[{place}]"), f"plans[{place}]", prunes=prunes)
    require_once((given["name"] for given in form.listed(whole, "plans", "the file")), "plans")
    names: list[str] = []
    for place, given in enumerate(form.listed(whole, "tenants", "the file")):
        tenant = WantedTenant(store, tenancy, form.mapping(given, f"tenants[{place}]"), f"tenants[{place}]")
        found += tenant.steps(named, prunes=prunes)
        names.append(tenant.name)
    require_once(names, "tenants")
    return found


def run(
    _store: AccountStore, found: Sequence[Step], asked: Asked, on_secret: OnSecret, on_progress: OnProgress
) -> None:
    """Do the steps. What was done before one fails stays, and its secrets were given to `on_secret`.

    Raises as the step, and InterruptedWorkError; the text says how many are done.
    """
    del asked  # where there are only descriptions of steps, it is what they are made of
    for number, step in enumerate(found, 1):
        so_far = f"{number - 1} of {len(found)} changes are made: apply the file again for the rest"
        try:
            made = None if step.run is None else step.run()
        except IotHubError as error:
            error.args = (f"{error}; {so_far}",)
            raise
        except KeyboardInterrupt:
            raise InterruptedWorkError(f"interrupted; {so_far}") from None
        if made is not None and made.secret is not None:
            username = f"{step.tenant}/{step.name}"
            on_secret({"name": step.name, "username": username, "secret": made.secret})
        on_progress(number, len(found))


def row(step: Step) -> dict[str, str]:
    """Return a step as scripts see it."""
    return {
        "action": step.action,
        "what": step.what,
        "tenant": step.tenant,
        "name": step.name,
        "change": step.change,
    }


def not_applied(document: object) -> list[str]:
    """Return the parts of exported tenants that `steps` leaves alone."""
    whole = document if isinstance(document, Mapping) else {}
    entries = [entry for entry in whole.get("tenants", [whole]) if isinstance(entry, Mapping)]
    named = {part for entry in entries for part in form.NOT_APPLIED if entry.get(part)}
    is_any = any(entry.get("streams") and any(map(_is_of_stream, entry.get("rules") or ())) for entry in entries)
    return [*sorted(named), *([form.RULES_TO_COME] if is_any else [])]


def _is_of_stream(rule: object) -> bool:
    from iothub_tenants.accounts.streams import SUBJECT

    subject = rule.get("subject", "") if isinstance(rule, Mapping) else f"{rule} - -".split()[1]
    return str(subject).startswith(SUBJECT)


def _plan(store: AccountStore, named: Plans, given: form.Row, where: str, *, prunes: bool) -> Iterator[Step]:
    from iothub_tenants.accounts import plans

    form.require_known(given, ("name", "parent", "weight", "limits"), where)
    form.require_kinds({key: value for key, value in given.items() if value is not None}, _OF_PLAN, where)
    name, limits = form.text(given, "name", where), form.limits(form.listed(given, "limits", where), f"{where}.limits")
    parent, weight = given.get("parent"), given.get("weight")
    with placed(where):
        named.set(name, parent, weight)
    known = named.known.get(name)
    if known is None:
        make = partial(plans.create, store, name, list(limits.values()), parent=parent or plans.STANDARD, weight=weight)
        yield Step("create", "plan", "", name, " ".join(limits.values()), silent(make))
        return
    has = form.limits(known.limits.split(), name)
    changes = [
        f"{has.get(key, 'none')} -> {text}"
        for key, text in limits.items()
        if not form.is_same_limit(has.get(key), text)
    ]
    if parent is not None and parent != known.parent:
        changes.append(f"parent: {known.parent} -> {parent}")
    if weight is not None and weight != known.weight:
        changes.append(f"weight: {known.weight} -> {weight}")
    if changes:
        change = partial(plans.set_plan, store, name, list(limits.values()), parent=parent, weight=weight)
        yield Step("update", "plan", "", name, "; ".join(changes), silent(change))
    if prunes and "limits" in given:
        for key in has:
            if key not in limits:
                quota, left = form.left_of(key, limits)
                unset = partial(plans.set_plan, store, name, left, without=[quota])
                yield Step("delete", "limit", "", f"{name}:{key}", has[key], silent(unset))
