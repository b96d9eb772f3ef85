"""How numbers, addresses and URLs are written, and pydantic's errors in the service's shape, never with a value."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from cpaas_provider.sandbox.core.errors import FieldError

MSISDN = "[1-9][0-9]{6,14}"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_WORD = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}"
_TOP = "(?:[A-Za-z]{2,63}|xn--[A-Za-z0-9-]{2,59})"
EMAIL = f"{_WORD}(?:\\.{_WORD}){{0,8}}@(?:{_LABEL}\\.){{1,8}}{_TOP}"
_HEX = "[0-9A-Fa-f]{1,4}"
_IPV6 = f"\\[(?:::1|(?:{_HEX}:){{7}}{_HEX}|(?:{_HEX}:){{1,6}}:{_HEX})\\]"
_HOST = f"(?:{_LABEL}(?:\\.{_LABEL}){{0,8}}|{_IPV6})"
_PORT = "(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
URL = f"https?://{_HOST}(?::{_PORT})?(?:[/?#][!-~]{{0,2000}})?"

# pydantic's code -> code and sentence where the service's own are clearer
_ERRORS = {
    "dict_type": ("object_type", "must be an object"),
    "extra_forbidden": ("extra_forbidden", "is not known here"),
    "float_type": ("number_type", "must be a number"),
    "literal_error": ("enum", None),
}


@dataclass(frozen=True)
class Written:
    """The pattern of a whole text, and the sentence that says what the text must be."""

    pattern: str
    sentence: str
    example: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check the pattern after the type."""
        matches = re.compile(self.pattern).fullmatch

        def check(text: str) -> str:
            if matches(text) is None:
                raise PydanticCustomError("string_pattern_mismatch", self.sentence)
            return text

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the pattern."""
        return handler(schema) | {"pattern": f"^(?:{self.pattern})$", "examples": [self.example]}


Msisdn = Annotated[
    str, Written(MSISDN, "must be a number in international format: 7 to 15 digits without plus sign", "2348030000001")
]
EmailAddress = Annotated[str, Written(EMAIL, "must be an email address", "ada@example.com")]
WebAddress = Annotated[str, Written(URL, "must be an absolute http or https URL", "http://127.0.0.1:8086/reports")]


def is_loopback(url: str) -> bool:
    """Tell whether a URL's host is this machine itself, by name or address; no name is resolved."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def one_of(names: Iterable[str]) -> AfterValidator:
    """Return what holds a string to the names of a table."""
    known = tuple(names)

    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return name

    return AfterValidator(check)


def field_errors(details: Iterable[Mapping[str, Any]], whole: str = "body") -> list[FieldError]:
    """Return pydantic's error details as the service shows them."""
    errors = []
    for one in details:
        code, sentence = _ERRORS.get(one["type"], (one["type"], None))
        field = ".".join(map(str, one["loc"])) or whole
        errors.append(FieldError(field, sentence or one["msg"].removeprefix("Value error, "), code))
    return errors


def in_words(details: Iterable[Mapping[str, Any]], at: str = "") -> str:
    """Return pydantic's error details in one line, for what stands at a place."""
    found = [(".".join(filter(None, (at, one.field))), one.message) for one in field_errors(details, "")]
    return "; ".join(f"{field}: {message}" if field else message for field, message in found)
