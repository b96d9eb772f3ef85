"""The same SMS sent with the journal and without it, each task telling how long it took and what the journal cost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG

from cpaas_provider.operators.sms import SendSmsOperator
from cpaas_provider.tasks import runtime
from cpaas_provider.tasks.airflow import store

SENDS = 16


class Watch:
    """A store that counts and times what passes through it."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.calls: dict[str, list[float]] = {"reads": [], "writes": []}

    def get(self, key: str) -> Any:
        return self._timed("reads", self.store.get, key)

    def set(self, key: str, value: Any) -> None:
        self._timed("writes", self.store.set, key, value)

    def _timed(self, kind: str, work: Any, *args: Any) -> Any:
        began = time.perf_counter()
        try:
            return work(*args)
        finally:
            self.calls[kind].append((time.perf_counter() - began) * 1000)


class Nowhere:
    """A store that keeps nothing and costs nothing: the same work without a state to write to."""

    calls: Mapping[str, list[float]] = {"reads": [], "writes": []}

    def get(self, key: str) -> None:
        return None

    def set(self, key: str, value: Any) -> None:
        pass


class Timed(SendSmsOperator):
    """An SMS with the journal in its place."""

    def store(self, context: Any) -> Any:
        return Watch(store.TaskStateStore(context["task_state_store"], context["ti"].id))

    def execute(self, context: Any) -> dict[str, Any]:
        store, usual = self.store(context), runtime.open_journal_store
        runtime.open_journal_store = lambda *_: contextlib.nullcontext(store)
        try:
            began = time.perf_counter()
            super().execute(context)
            took = (time.perf_counter() - began) * 1000
        finally:
            runtime.open_journal_store = usual
        return {"execute": took, **store.calls}


class Unjournaled(Timed):
    """The same without a state."""

    def store(self, context: Any) -> Any:
        return Nowhere()


with DAG("journal_cost", schedule=None, max_active_tasks=1):
    for kind in (Timed, Unjournaled):
        kind.partial(task_id=kind.__name__.lower(), content="Hello", sender_id="Shop", max_active_tis_per_dag=1).expand(
            recipients=[[f"+23480355{n:05}"] for n in range(SENDS)]
        )
