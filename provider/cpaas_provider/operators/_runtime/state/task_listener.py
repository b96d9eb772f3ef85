"""Airflow's listener in task processes: a task that opens an idempotent client leaves the word that nothing was sent.

The author's code before the client may fail, and then no other code of the provider runs in that try. Airflow calls the
listener right before that code. This module is imported in every task process, so it imports nothing else of ours.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from airflow.listeners import hookimpl

_CLIENTS = frozenset({"get_idempotent_client", "get_async_idempotent_client"})


@hookimpl
def on_task_instance_running(task_instance: Any) -> None:
    """Record that a task has sent nothing, if its function opens an idempotent client."""
    function = getattr(getattr(task_instance, "task", None), "python_callable", None)
    if function is None or not opens_client(function):
        return
    from airflow.sdk import get_current_context

    from cpaas_provider.operators._runtime.context import record_nothing_sent

    record_nothing_sent(get_current_context())


def opens_client(function: Any) -> bool:
    """Return whether a function, or one of its module that it calls, names a method that opens an idempotent client."""
    remaining, seen = [inspect.unwrap(function)], set[int]()
    while remaining:
        called = remaining.pop()
        if not isinstance(called, FunctionType) or id(called) in seen:
            continue
        seen.add(id(called))
        names = set(_names(called.__code__))
        if names & _CLIENTS:
            return True
        found = (called.__globals__.get(name) for name in names)
        remaining += [other for other in found if getattr(other, "__globals__", None) is called.__globals__]
    return False


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
