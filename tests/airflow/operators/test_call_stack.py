"""The way of one send as a debugger shows it, compared with the architecture page."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from types import CodeType, CoroutineType
from typing import Any

import pytest

from cpaas_provider.api.http.transport import AsyncTransport
from cpaas_provider.operators.sms import SendSmsOperator
from cpaas_provider.sending.engine import SendEngine
from tests.airflow.harness.stage import Stage, phone
from tests.airflow.harness.tries import Run, new_dag
from tests.unit.docs import ROOT

PACKAGE = str(ROOT / "provider" / "cpaas_provider")
MOST = 20


def is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(PACKAGE)


def on_the_thread() -> Iterator[CodeType]:
    """Yield the functions on this thread's stack, the innermost first."""
    frame = sys._getframe()
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back  # type: ignore[assignment]  # the outermost has none


def in_the_engine() -> Iterator[CodeType]:
    """Yield the functions in which the engine waits for the dispatcher's worker, the outermost first.

    Beside the way are the tasks that write the journal and that wait for a stop.
    """
    for task in asyncio.all_tasks():
        coroutine: Any = task.get_coro()
        if coroutine.__qualname__ == SendEngine.run.__qualname__:
            while isinstance(coroutine, CoroutineType):
                yield coroutine.cr_code
                coroutine = coroutine.cr_await


@pytest.fixture
def on_the_way(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the functions of the provider between ``execute`` and the wire, in one single send."""
    found: dict[CodeType, str] = {}
    send = AsyncTransport.send

    async def seen(self: AsyncTransport, request: Any) -> Any:
        codes = [send.__code__, *on_the_thread(), *in_the_engine()]
        found.update((code, code.co_qualname) for code in codes if is_ours(code))
        return await send(self, request)

    monkeypatch.setattr(AsyncTransport, "send", seen)
    with new_dag() as dag:
        SendSmsOperator(task_id="send", recipients=[phone("stack")], content="Hello")
    assert Run(stage, dag).once().state == "success"
    return list(found.values())


def test_single_send_takes_at_most_twenty_functions_from_execute_to_the_wire(on_the_way: list[str]) -> None:
    assert {"CpaasOperator.execute", "SendEngine.run", "Dispatcher.run", "AsyncTransport.send"} <= set(on_the_way)
    assert len(on_the_way) <= MOST, "\n".join(on_the_way)


def test_architecture_page_names_the_stations_of_the_way(on_the_way: list[str]) -> None:
    page = (ROOT / "docs" / "contributing" / "architecture.md").read_text(encoding="utf-8")
    walk = page.split("## The way of one send")[1].split("\n## ")[0]
    named = {name.rsplit(".", 1)[-1] for name in re.findall(r"`([\w.]+)`", walk)}
    public = {name for name in on_the_way if not name.rsplit(".", 1)[-1].startswith("_")}
    unnamed = {name for name in public if name.rsplit(".", 1)[-1] not in named}
    assert unnamed == set(), "Name them on the page, in their place."
