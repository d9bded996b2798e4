"""Limits as bodies have them: by name a whole number, "unlimited", or rates; whoever is refused gets one sentence.

Knows no resource and no plan. The OpenAPI has for each limit the values that this one takes.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainValidator, WithJsonSchema

from iothub.rest.texts import EXPECTED, RATE, Checked
from iothub_services.quota.grammar import parse_name
from iothub_services.quota.names import BY_NAME, Kind, Quota


def _whole_number(value: object) -> object:
    """JSON has one kind of numbers: 5.0 is 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole_number)


def _limit_value(value: object) -> int | str | list[str]:
    value = _whole_number(value)
    if value == "unlimited" or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if not isinstance(value, list):
        raise ValueError('expected a whole number, "unlimited" or a list such as ["50/1s"]')
    if not all(isinstance(each, str) and re.fullmatch(RATE, each) for each in value):
        raise ValueError(EXPECTED[RATE])
    return value


LimitValue = Annotated[int | str | list[str], PlainValidator(_limit_value)]
LimitName = Annotated[
    str, Checked(lambda name: parse_name(name.removeprefix("dry-run:")), f"^(dry-run:)?({'|'.join(BY_NAME)})$")
]


def _limits_schema(*, is_of_device: bool, is_removing: bool) -> dict[str, Any]:
    """Return what limits there are, each with the values that it takes."""
    known: dict[str, Any] = {}
    for quota in BY_NAME.values():
        if quota.is_for_devices or not is_of_device:
            value = _value_schema(quota)
            known[str(quota.value)] = {"anyOf": [*value, {"type": "null"}]} if is_removing else {"anyOf": value}
            if quota.has_trial:
                known[f"dry-run:{quota.value}"] = {"anyOf": value}
    return {"type": "object", "properties": known, "additionalProperties": False}


def _value_schema(quota: Quota) -> list[dict[str, Any]]:
    unlimited = {"const": "unlimited"}
    if quota.kind is Kind.RATE:
        rate = {"type": "string", "pattern": RATE}
        return [{"type": "array", "items": rate, "minItems": 1, "maxItems": 8}, unlimited]
    most = quota.most or 10**15
    return [{"type": "integer", "minimum": quota.least, "maximum": most}, unlimited]


Limits = Annotated[
    dict[LimitName, LimitValue],
    WithJsonSchema(_limits_schema(is_of_device=False, is_removing=False)),
]
LimitChanges = Annotated[
    dict[LimitName, LimitValue | None],
    WithJsonSchema({**_limits_schema(is_of_device=False, is_removing=True), "minProperties": 1}),
]
DeviceLimitChanges = Annotated[
    dict[LimitName, LimitValue | None],
    WithJsonSchema({**_limits_schema(is_of_device=True, is_removing=True), "minProperties": 1}),
]
