"""A DAG with one task, which ``task_process`` runs and measures: one that does nothing, or one that sends an SMS."""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator

measured: dict[str, Any] = {}


class Empty(BaseOperator):
    """Does nothing."""

    def execute(self, context: Any) -> None:
        """Return at once."""


def with_measures(operator: type[BaseOperator]) -> type[BaseOperator]:
    """Return the operator with an ``execute`` that measures its CPU time and the modules that it loads."""

    class Measured(operator):  # type: ignore[misc,valid-type]  # a base that is known only here
        def execute(self, context: Any) -> Any:
            modules, began = set(sys.modules), time.process_time()
            result = super().execute(context)
            measured["execute_ms"] = (time.process_time() - began) * 1000
            measured["modules_of_execute"] = sorted(set(sys.modules) - modules)
            return result

    # Of a subclass in another module the provider records more.
    Measured.__module__ = operator.__module__
    return Measured


def models() -> dict[str, bool]:
    """Return the models of the provider that are loaded, each with whether its validator was built."""
    base = sys.modules.get("cpaas_provider.api.models.base")
    if base is None:
        return {}
    found = set[Any]()
    pending = [base.WireRequest, base.WireResource]
    while pending:
        found.add(model := pending.pop())
        pending += model.__subclasses__()
    return {model.__name__: model.__pydantic_complete__ for model in found}


@atexit.register
def write_measures() -> None:
    measured.update(modules=sorted(sys.modules), models=models())
    Path(os.environ["TASK_PROCESS_RESULT"]).write_text(json.dumps(measured))


with DAG("one_task", schedule=None):
    if os.environ["TASK_PROCESS"] == "sms":
        from cpaas_provider.operators.sms import SendSmsOperator

        with_measures(SendSmsOperator)(task_id="task", recipients=["+2348035500001"], content="Hello", sender_id="Shop")
    else:
        with_measures(Empty)(task_id="task")
