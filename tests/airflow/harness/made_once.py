"""What Airflow makes anew for each task, and is the same each time, is made once in a process of the tests."""

from __future__ import annotations

import functools
import json
from typing import Any

import jinja2
from airflow.sdk.execution_time import task_runner
from jsonschema import Draft202012Validator

_MOST_SCHEMAS = 512


def make_once() -> None:
    """Have this process check schemas, compile templates and build validators when it first sees them."""
    _check_schemas_once()
    _compile_templates_once()
    task_runner.TypeAdapter = functools.cache(task_runner.TypeAdapter)


def _check_schemas_once() -> None:
    """Serialising a DAG looks at all its params several times a task. A wrong schema is refused each time."""
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


def _compile_templates_once() -> None:
    """Each text in the arguments of a task is a template. One without tags has the same code in each DAG."""
    usual = jinja2.Environment.compile
    codes: dict[tuple[Any, ...], Any] = {}

    def compile_once(self: Any, source: Any, *arguments: Any, **options: Any) -> Any:
        if arguments or options or not isinstance(source, str) or "{" in source:
            return usual(self, source, *arguments, **options)
        # Environments with the same syntax share their lexer.
        name = (type(self), self.lexer, self.autoescape, source)
        if name not in codes:
            codes[name] = usual(self, source)
        return codes[name]

    jinja2.Environment.compile = compile_once  # type: ignore[method-assign, assignment]
