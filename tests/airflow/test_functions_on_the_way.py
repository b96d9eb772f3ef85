"""How many functions of the provider run during a send, a campaign and a sync: what a reader has to follow."""

from __future__ import annotations

import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from cpaas_provider.database.database import open_database
from cpaas_provider.operators.base import CpaasOperator
from cpaas_provider.operators.contact_sync import SyncContactsOperator
from cpaas_provider.operators.sms import SendSmsOperator, SmsCampaignOperator
from tests.airflow.harness.task_runner import TaskRunner, phone
from tests.airflow.harness.tries import Run, new_dag
from tests.unit.docs import ROOT

PACKAGE = str(ROOT / "provider" / "cpaas_provider")
COMPREHENSION = re.compile(r"<(listcomp|setcomp|dictcomp|genexpr)>$")
# Distinct functions and files of each way. A change that needs more says why. On a slow machine the timer of a
# connection fires, and a campaign asks again whether the connection is stopped: one and two of them. Up to thirteen ask
# whether the connection is stopped, search new opt-outs, and ask whether a budget needs a price.
MOST = {"send": (376, 62), "campaign": (518, 91), "sync": (477, 81)}


class CallRecorder:
    """Records which functions of the provider ran on any thread."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()

    def clear(self) -> None:
        self._codes.clear()

    @contextmanager
    def recording(self) -> Iterator[None]:
        threading.setprofile(self._record)
        sys.setprofile(self._record)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]  # removes it, which typeshed does not know

    def _record(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._codes.add(frame.f_code)

    def functions(self) -> list[str]:
        """Return ``file:function`` of each."""
        return sorted(
            f"{Path(code.co_filename).relative_to(PACKAGE)}:{code.co_qualname}"
            for code in self._codes
            if code.co_filename.startswith(PACKAGE)
            and code.co_flags & inspect.CO_OPTIMIZED  # bodies of classes and modules are not
            and not COMPREHENSION.search(code.co_qualname)
        )


def send(round_number: int) -> None:
    SendSmsOperator(task_id="send", recipients=[phone(f"way {round_number}")], content="Hello")


def campaign(round_number: int) -> None:
    source = [phone(f"{name} {round_number}") for name in ("way", "path", "road")]
    SmsCampaignOperator(task_id="send", source=source, content="Hello")


def sync(round_number: int) -> None:
    source = [{"key": f"{round_number}-{key}", "Name": "Ada"} for key in range(3)]
    SyncContactsOperator(task_id="send", source=source, key="key", columns=["Name"], max_new=1.0)


@pytest.fixture
def run(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[Callable[[int], None]], list[str]]:
    """Runs the one task of a DAG, and returns the functions on the way from ``execute``."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/cpaas.db")
    open_database().close()
    recorder = CallRecorder()
    execute = CpaasOperator.execute

    def execute_recorded(self: CpaasOperator, context: Any) -> Any:
        with recorder.recording():
            return execute(self, context)

    monkeypatch.setattr(CpaasOperator, "execute", execute_recorded)

    def run_task(add_task: Callable[[int], None]) -> list[str]:
        # The first round fills caches and creates tables, as far as earlier tests have not.
        for round_number in range(2):
            recorder.clear()
            with new_dag() as dag:
                add_task(round_number)
            tried = Run(task_runner, dag).run_try()
            assert tried.state == "success", tried.error
        return recorder.functions()

    return run_task


@pytest.mark.parametrize("way", [send, campaign, sync], ids=["send", "campaign", "sync"])
def test_way_runs_through_few_functions_and_files(
    run: Callable[[Callable[[int], None]], list[str]], way: Callable[[int], None]
) -> None:
    functions = run(way)
    files = {function.partition(":")[0] for function in functions}
    most_functions, most_files = MOST[way.__name__]
    figures = f"{len(functions)} functions in {len(files)} files"
    print(figures)
    assert len(functions) <= most_functions, "\n".join([figures, *functions])
    assert len(files) <= most_files, "\n".join([figures, *sorted(files)])


def test_architecture_page_has_the_figures_of_each_way() -> None:
    page = (ROOT / "docs" / "contributing" / "architecture.md").read_text(encoding="utf-8")
    figures = [tuple(map(int, pair)) for pair in re.findall(r"(\d+)(?: functions)? in (\d+)(?: files)? for a", page)]
    assert figures == list(MOST.values())


def test_architecture_page_names_functions_that_a_send_runs_through(
    run: Callable[[Callable[[int], None]], list[str]],
) -> None:
    functions = {function.rpartition(":")[2].rpartition(".")[2] for function in run(send)}
    page = (ROOT / "docs" / "contributing" / "architecture.md").read_text(encoding="utf-8")
    walk = page.split("## The way of one send")[1].split("\n## ")[0]
    named = {name.rpartition(".")[2] for name in re.findall(r"`[\w.]+\.([\w.]+)`", walk)}
    named = {name for name in named if not name[0].isupper()}
    assert len(named) > 10
    # Airflow calls the first before `execute`, and the second is for a callback URL.
    assert named - functions == {"render_fields", "check"}
