"""What the demo shows: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tests.system.demo_figures import Line

WIDTH = 100  # of the table; less would break its lines

Show = Callable[[list[dict[str, Any]], dict[str, Any]], None]

_STYLES = {"success": "green", "failed": "red", "upstream_failed": "red", "running": "yellow", "up_for_retry": "yellow"}


class View:
    """All output of the demo."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._console.width = max(self._console.width, WIDTH)

    def say(self, text: str) -> None:
        """Show a line."""
        self._console.print(text, markup=False)

    def problem(self, text: str) -> None:
        """Show what went wrong."""
        self._console.print(text, style="red", markup=False)

    @contextlib.contextmanager
    def watching(self) -> Iterator[Show]:
        """Give a function that shows the present state of tasks and counters."""
        if not self._console.is_terminal:
            yield self._lines()
            return
        with Live(console=self._console, refresh_per_second=4, transient=True) as live:
            yield lambda tasks, counters: live.update(_progress(tasks, counters))

    def _lines(self) -> Show:
        """Show what changed, and the counters whenever a task does."""
        seen: dict[str, str | None] = {}

        def show(tasks: list[dict[str, Any]], counters: dict[str, Any]) -> None:
            for task in sorted(tasks, key=lambda task: task["start_date"] or "9"):
                name, state = named(task), task["state"]
                if seen.get(name) != state and state in {"running", "success", "failed", "up_for_retry"}:
                    self.say(f"  {name:<16} {state:<14} {_counted(counters)}")
                seen[name] = state

        return show

    def table(self, lines: list[Line]) -> None:
        """Show the campaign's figures beside what they were compared with."""
        table = Table(title="The campaigns", box=box.SIMPLE_HEAD, title_justify="left")
        table.add_column("")
        table.add_column("campaign", justify="right")
        table.add_column("counted", justify="right")
        table.add_column("by")
        table.add_column("")
        for line in lines:
            verdict = Text("agrees", style="green") if line.agrees else Text("DISAGREES", style="bold red")
            table.add_row(line.label, _figure(line.campaign), _figure(line.other), line.source, verdict)
        self._console.print(table)

    def task_failed(self, task_id: str, log: str) -> None:
        """Show the end of a failed task's log."""
        self.problem(f"Task {task_id} failed. The end of its log:")
        self.say(log or "(no log)")

    def verdict(self, states: Mapping[str, str], lines: list[Line], seconds: float) -> None:
        """Show how it all ended."""
        wrong = [line.label.strip() for line in lines if not line.agrees]
        failed = {dag_id: state for dag_id, state in states.items() if state != "success"}
        for dag_id, state in failed.items():
            self.problem(f"The run of {dag_id} ended in state {state}, {seconds:.0f} s after the start.")
        if not lines:
            self.problem("The run left no summary.")
        if wrong:
            self.problem(f"These figures of campaign and service differ: {', '.join(wrong)}.")
        if lines and not failed and not wrong:
            self.say(f"Both runs succeeded and all figures agree. The demo took {seconds:.0f} s.")

    def where_to_look(self, places: Mapping[str, object]) -> None:
        """Show where the rest is."""
        for what, place in places.items():
            self.say(f"  {what + ':':<20} {place}")

    def still_up(self, airflow: str, user: str, password: str, inbox: str) -> None:
        """Show how to reach what was left up, and how to end it."""
        self.say("Airflow and the sandbox are still running:")
        self.where_to_look(
            {"Airflow": f"{airflow}   login {user} / {password}", "Inbox": inbox, "Stop both": "make demo-stop"}
        )


def named(task: Mapping[str, Any]) -> str:
    """Return a task instance's name, with its place where it is one of several."""
    return f"{task['task_id']} [{task['map_index']}]" if task["map_index"] >= 0 else str(task["task_id"])


def _progress(tasks: list[dict[str, Any]], counters: dict[str, Any]) -> Group:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("task")
    table.add_column("state")
    table.add_column("seconds", justify="right")
    for task in sorted(tasks, key=lambda task: task["start_date"] or "9"):
        state = task["state"] or "waiting"
        seconds = f"{task['duration']:.1f}" if task["duration"] else ""
        table.add_row(named(task), Text(state, style=_STYLES.get(state, "dim")), seconds)
    return Group(table, Text(_counted(counters)))


def _counted(counters: dict[str, Any]) -> str:
    contacts = counters["contacts"]["created"] + counters["contacts"]["updated"]
    return (
        f"lookups {counters['lookups']}, contacts {contacts}, SMS {counters['sms']['recipients']}, "
        f"emails {counters['email']['recipients']}, charged {counters['charged']:,.2f}"
    )


def _figure(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
