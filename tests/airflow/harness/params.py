"""Params of a DAG are validated whenever they are looked at, their schemas each time before: here, each schema once."""

from __future__ import annotations

import functools
import json
from typing import Any

from jsonschema import Draft202012Validator

_MOST_SCHEMAS = 512


def check_schemas_once() -> None:
    """Have this process check a schema when it first sees it.

    Serialising a DAG looks at all its params several times a task, and each look took milliseconds. A wrong schema is
    refused each time.
    """
    usual = Draft202012Validator.check_schema

    @functools.lru_cache(_MOST_SCHEMAS)
    def check(schema: str) -> None:
        usual(json.loads(schema))

    def check_schema(schema: Any, **options: Any) -> None:
        if options:
            usual(schema, **options)
        else:
            check(json.dumps(schema, sort_keys=True))

    Draft202012Validator.check_schema = check_schema
