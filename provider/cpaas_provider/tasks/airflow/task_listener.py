"""Airflow's listener in task processes: a task that has sent nothing leaves that word, whatever ended its try.

The author's code, or Airflow's own, may fail before any other code of the provider runs. Airflow calls the listener
right before the author's code, and after a try that failed. This module is imported in every task process, so it
imports nothing else of ours.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from airflow.listeners import hookimpl

_CLIENTS = frozenset({"get_idempotent_client", "get_async_idempotent_client"})
_HOOK = "cpaas_provider.hooks.cpaas"
RESULTS = frozenset(
    f"cpaas_provider.api.models.{name}"
    for name in (
        *("airtime.AirtimePurchase", "contacts.ContactRowRecord", "contacts.ContactTable", "email.EmailMessage"),
        *("lookup.PhoneLookup", "otp.OtpToken", "sms.SmsMessage"),
    )
)
"""The classes of what a client's methods return."""


def allow_results() -> None:
    """Let tasks of this process read the results of a client that other tasks returned.

    Airflow reads only classes that ``[core] allowed_deserialization_classes`` names, or that the process allows. Its
    ``allow_class`` would import the models in every task process.
    """
    from airflow.sdk import serde

    serde._extra_allowed.update(RESULTS)


@hookimpl
def on_task_instance_running(task_instance: Any) -> None:
    """Record that a task has sent nothing, if its function opens an idempotent client."""
    function = getattr(getattr(task_instance, "task", None), "python_callable", None)
    if function is None or not opens_client(function):
        return
    from airflow.sdk import get_current_context

    from cpaas_provider.tasks.airflow.context import record_nothing_sent

    record_nothing_sent(get_current_context())


@hookimpl
def on_task_instance_failed(task_instance: Any) -> None:
    """Record that a task that failed has sent nothing, if it could have sent."""
    # The scheduler and the API server call this, too, with a task instance that has no context.
    get_context = getattr(task_instance, "get_template_context", None)
    # A task that is up for retry has another id by now, and what this try writes is refused.
    if get_context is None or task_instance.state != "failed":
        return
    if _has_journal(task_instance.task) or _may_open_client(task_instance.task):
        from cpaas_provider.tasks.airflow.context import record_nothing_sent

        record_nothing_sent(get_context())


def _has_journal(task: Any) -> bool:
    """Return whether a task is of ours and has its journal in the task state."""
    # Of a mapped task that could not be made there is only the class.
    operator = getattr(task, "operator_class", type(task))
    key = getattr(task, "idempotency_key", None) or getattr(task, "partial_kwargs", {}).get("idempotency_key")
    return getattr(operator, "has_task_journal", False) is True and key is None


def _may_open_client(task: Any) -> bool:
    """Return whether a task calls a function, and something in its process has imported the hook."""
    is_function = hasattr(task, "python_callable") or "python_callable" in getattr(task, "partial_kwargs", ())
    return is_function and _HOOK in sys.modules


def opens_client(function: Any) -> bool:
    """Return whether a function, or code of its module that it uses, names a method that opens an idempotent client."""
    remaining, seen = list(_functions(function)), set[int]()
    while remaining:
        called = remaining.pop()
        if id(called) in seen:
            continue
        seen.add(id(called))
        names = set(_names(called.__code__))
        if names & _CLIENTS:
            return True
        module = called.__globals__.get("__name__")
        used = [called.__globals__[name] for name in names if name in called.__globals__]
        remaining += [one for other in used for one in _functions(other) if one.__module__ == module]
    return False


def _functions(called: Any) -> Iterator[FunctionType]:
    """Yield the functions that run when something is called, or when an instance of a class is used."""
    while isinstance(called, (functools.partial, MethodType)):
        called = called.func if isinstance(called, functools.partial) else called.__self__.__class__
    if not isinstance(called, (FunctionType, type)):
        called = inspect.unwrap(called) if hasattr(called, "__wrapped__") else type(called)
    if isinstance(called, type):
        yield from (one for one in vars(called).values() if isinstance(one, FunctionType))
    elif isinstance(called := inspect.unwrap(called), FunctionType):
        yield called


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
