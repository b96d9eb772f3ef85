"""Patterns of numbers, addresses and URLs; pydantic's errors in the service's shape, without the rejected values."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from cpaas_sandbox.core.errors import FieldError

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

# pydantic's code -> the service's code and message; None keeps pydantic's message
_ERRORS = {
    "dict_type": ("object_type", "must be an object"),
    "extra_forbidden": ("extra_forbidden", "is not known here"),
    "float_type": ("number_type", "must be a number"),
    "literal_error": ("enum", None),
}


@dataclass(frozen=True)
class Written:
    """Annotation of a string that must match a pattern as a whole, with the error message for one that does not."""

    pattern: str
    sentence: str
    example: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check the pattern after the type. Python's ``re`` is used: pydantic's own engine has no look-ahead."""
        matches = re.compile(self.pattern).fullmatch

        def check(text: str) -> str:
            if matches(text) is None:
                raise PydanticCustomError("string_pattern_mismatch", self.sentence)
            return text

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Add the pattern to the JSON schema."""
        return handler(schema) | {"pattern": f"^(?:{self.pattern})$", "examples": [self.example]}


Msisdn = Annotated[
    str, Written(MSISDN, "must be a number in international format: 7 to 15 digits without plus sign", "2348030000001")
]
EmailAddress = Annotated[str, Written(EMAIL, "must be an email address", "ada@example.com")]
WebAddress = Annotated[str, Written(URL, "must be an absolute http or https URL", "http://127.0.0.1:8086/reports")]


def is_loopback(url: str) -> bool:
    """Return whether a URL's host is ``localhost`` or a loopback address; no name is resolved."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def one_of(names: Iterable[str]) -> AfterValidator:
    """Return a validator that accepts only the given names."""
    known = tuple(names)

    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return name

    return AfterValidator(check)


def field_errors(details: Iterable[Mapping[str, Any]], root: str = "") -> list[FieldError]:
    """Return pydantic's error details as the service's errors; ``root`` names the value that was checked."""
    errors = []
    for detail in details:
        code, message = _ERRORS.get(detail["type"], (detail["type"], None))
        field = ".".join(map(str, detail["loc"])) or root
        errors.append(FieldError(field, message or detail["msg"].removeprefix("Value error, "), code))
    return errors


def one_line(errors: Iterable[FieldError]) -> str:
    """Return all errors in one line, such as ``sender_id: is required; content: is required``."""
    return "; ".join(f"{error.field}: {error.message}" if error.field else error.message for error in errors)


def in_words(error: ValidationError, parent: str = "") -> str:
    """Return a validation error in one line, its fields named below ``parent``."""
    details = error.errors(include_url=False, include_input=False)
    path = (parent,) if parent else ()
    return one_line(field_errors([{**detail, "loc": (*path, *detail["loc"])} for detail in details]))
