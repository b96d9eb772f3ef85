"""A small reader of JSON Schema.

One piece of data both describes a request in the OpenAPI document and checks it on arrival, so that the two cannot
drift apart. Only the keywords the service's requests use are known; ``x-message`` is the sentence shown to the caller.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

from cpaas_provider.sandbox.core.errors import FieldError

Schema = dict[str, Any]
Check = Callable[[Any, str, list[FieldError]], None]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_date(value: str) -> bool:
    try:
        return len(value) == 10 and dt.date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


# type -> (is it?, validator code, sentence)
TYPES: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    "string": (lambda v: isinstance(v, str), "string_type", "must be a string"),
    "number": (_is_number, "number_type", "must be a number"),
    "integer": (lambda v: _is_number(v) and v == int(v), "int_type", "must be a whole number"),
    "boolean": (lambda v: isinstance(v, bool), "bool_type", "must be true or false"),
    "array": (lambda v: isinstance(v, list), "list_type", "must be a list"),
    "object": (lambda v: isinstance(v, dict), "object_type", "must be an object"),
    "null": (lambda v: v is None, "null_type", "must be null"),
}

# format -> (holds?, sentence)
FORMATS: dict[str, tuple[Callable[[str], bool], str]] = {
    "date": (_is_date, "must be an ISO 8601 date such as 2026-01-31"),
}

# keyword -> (value of the data it looks at, holds?, validator code, sentence)
BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str, str]] = {
    "minimum": (lambda v, bound: v >= bound, "greater_than_equal", "must be at least {}"),
    "maximum": (lambda v, bound: v <= bound, "less_than_equal", "must be at most {}"),
    "minLength": (lambda v, bound: len(v) >= bound, "string_too_short", "must have at least {} characters"),
    "maxLength": (lambda v, bound: len(v) <= bound, "string_too_long", "must have at most {} characters"),
    "minItems": (lambda v, bound: len(v) >= bound, "too_short", "must have at least {} items"),
    "maxItems": (lambda v, bound: len(v) <= bound, "too_long", "must have at most {} items"),
    "enum": (lambda v, bound: any(v == one and type(v) is type(one) for one in bound), "enum", "must be one of {}"),
}


def _within(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _pattern(pattern: str) -> re.Pattern[str]:
    # Python's "$" also matches before a final newline; the schema's does not.
    return re.compile(pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)


def _text_of(bound: Any) -> str:
    return ", ".join(map(str, bound)) if isinstance(bound, (list, tuple)) else str(bound)


def _members(schema: Schema) -> Check:
    """Check an object's required, known and unknown members."""
    known = {name: compile_schema(member) for name, member in schema.get("properties", {}).items()}
    required: list[str] = schema.get("required", [])
    # "one of content or template_id": each branch asks for one member
    either = [name for branch in schema.get("anyOf", []) for name in branch.get("required", [])]
    closed = schema.get("additionalProperties") is False
    unknown = schema.get("x-unknown", "is not a field of this request")

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        for name in required:
            if name not in value:
                errors.append(FieldError(_within(path, name), f"{name} is required", "missing"))
        if either and not any(name in value for name in either):
            sentence = f"one of {' and '.join(either)} is required"
            errors.extend(FieldError(_within(path, name), sentence, "missing") for name in either)
        for name, member in value.items():
            if name in known:
                known[name](member, _within(path, name), errors)
            elif closed:
                errors.append(FieldError(_within(path, name), f"{name} {unknown}", "extra_forbidden"))

    return check


def _items(schema: Schema) -> Check:
    item = compile_schema(schema["items"])

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        for index, member in enumerate(value):
            item(member, _within(path, index), errors)

    return check


def _alternatives(schema: Schema) -> Check:
    """Accept a value that any branch accepts; a refusal speaks in the first branch's words."""
    branches = [compile_schema(branch) for branch in schema["anyOf"]]

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        first: list[FieldError] | None = None
        for branch in branches:
            found: list[FieldError] = []
            branch(value, path, found)
            if not found:
                return
            first = first or found
        errors.extend(first or [])

    return check


def compile_schema(schema: Schema) -> Check:
    """Return a check that appends a `FieldError` for everything in a value the schema does not allow."""
    if "anyOf" in schema and "type" not in schema:
        return _alternatives(schema)
    kind = TYPES.get(schema.get("type", ""))
    bounds = [(BOUNDS[name], schema[name]) for name in BOUNDS if name in schema]
    pattern = _pattern(schema["pattern"]) if "pattern" in schema else None
    form = FORMATS.get(schema.get("format", ""))
    said = schema.get("x-message")
    inner = _members(schema) if schema.get("type") == "object" else None
    if "items" in schema:
        inner = _items(schema)

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if kind is not None and not kind[0](value):
            errors.append(FieldError(path, said or kind[2], kind[1]))
            return
        for (holds, code, sentence), bound in bounds:
            if not holds(value, bound):
                errors.append(FieldError(path, said or sentence.format(_text_of(bound)), code))
                return
        if pattern is not None and not pattern.search(value):
            errors.append(FieldError(path, said or "has not the expected form", "string_pattern_mismatch"))
        elif form is not None and not form[0](value):
            errors.append(FieldError(path, said or form[1], "format"))
        elif inner is not None:
            inner(value, path, errors)

    return check
