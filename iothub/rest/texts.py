"""Texts that the API takes, each with the sentence that refuses another one: that of the accounts, which is the command line's, too.

Knows no resource. The OpenAPI has a pattern for each, for programs; a person is shown none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler

from iothub.base.errors import ConfigError

NO_NUL = r"^[^\x00]*$"
PRINTABLE = r"^[^\x00-\x1f\x7f-\xa0\xad]*$"  # the accounts check the rest
BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
WINDOW = "(([1-9]|[1-5][0-9])[sm]|(1|2|3|4|6|8|12)h|(1|7|30)d)"
RATE = f"^[1-9][0-9]{{0,15}}/{WINDOW}$"
NETWORK = "^[0-9a-fA-F.:]+(/[0-9]+)?$"
ADDRESS = "^[0-9a-fA-F.:]+$"
PUBLISHED_TOPIC = r"^[^\x00+#$][^\x00+#]*$"
RESPONSE_TOPIC = r"^[^\x00+#]*$"
OPTION = "^[a-z_]{1,32}$"
OFFSETS = "^([0-9]{1,5}-[0-9]{1,12}(,[0-9]{1,5}-[0-9]{1,12}){0,127})?$"

EXPECTED = {
    NO_NUL: "expected a text without NUL",
    PRINTABLE: "expected printable characters",
    BASE64: "expected Base64",
    RATE: 'expected NUMBER/WINDOW such as "50/1s": 1 to 59 s or m, 1, 2, 3, 4, 6, 8 or 12 h, 1, 7 or 30 d',
    NETWORK: "expected an address or a network, such as 192.0.2.7 or 192.0.2.0/24",
    ADDRESS: "expected an address, such as 192.0.2.7",
    PUBLISHED_TOPIC: "expected a Topic Name: not $ at the beginning, no +, # and NUL",
    RESPONSE_TOPIC: "expected a Topic Name: no +, # and NUL",
    OPTION: "expected the name of an option: 1 to 32 of a-z and _",
    OFFSETS: "expected `next` of the page before",
}
"""The sentence for each pattern that has no check of the accounts."""


class Checked:
    """A text that a function of the accounts refuses. `pattern`: what it takes, about, for the OpenAPI."""

    def __init__(self, check: Callable[[str], object], pattern: str) -> None:
        self._check = check
        self.pattern = pattern

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return AfterValidator(partial(_checked, self._check)).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern}


def _checked(check: Callable[[str], object], text: str) -> str:
    try:
        check(text)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return text


def sentence_of(error: Any) -> str:
    """Return what is wrong with a value, as a person reads it; `error`: as pydantic gives it."""
    if error["type"] == "string_pattern_mismatch":
        return EXPECTED.get(error["ctx"]["pattern"], "not valid")
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    sentence = _OF_KINDS.get(error["type"])
    return str(error["msg"]) if sentence is None else sentence.format(**error.get("ctx", {}))


_OBJECT, _NUMBER, _SWITCH = "expected an object", "expected a whole number", "expected true or false"
_OF_KINDS = {
    "missing": "is missing",
    "extra_forbidden": "unknown field",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), _OBJECT),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), _NUMBER),
    **dict.fromkeys(("bool_type", "bool_parsing"), _SWITCH),
    "string_type": "expected a text",
    "list_type": "expected a list",
    "literal_error": "expected {expected}",
    "enum": "expected {expected}",
    "string_too_short": "expected {min_length} or more characters",
    "string_too_long": "expected {max_length} or fewer characters",
    "too_short": "expected {min_length} or more entries",
    "too_long": "expected {max_length} or fewer entries",
    "greater_than_equal": "expected {ge} or more",
    "less_than_equal": "expected {le} or less",
}
"""The sentence for each kind of mistake that pydantic names; others are as it says them."""
