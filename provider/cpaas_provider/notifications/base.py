"""The base of the notifiers: their arguments, and how Airflow calls them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseNotifier

from cpaas_provider.api import bounds
from cpaas_provider.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context

DEFAULT_WINDOW = timedelta(minutes=5)


class CpaasNotifier(BaseNotifier):
    """Base of the notifiers (docs: guides/notifications).

    A notifier never raises an error into Airflow's callback: its log states what was sent, what was not, and why.

    :param recipients: as a list or comma-separated. Invalid recipients are left out and counted in the log (templated)
    :param content: the text. Default: the DAG or task and what happened to it. The default replaces
        a text that cannot be rendered, has no value, or has a placeholder such as ``{code}`` (templated)
    :param sender_id: the sender. Default: the connection's (templated)
    :param window: the shortest time between two notifications, as a timedelta or in seconds. Alerts in between are
        counted, and the next notification reports their number. 0 sends one message for each alert, and needs no
        database
    :param group: alerts with another value here have notifications of their own, such as ``{{ dag.dag_id }}``
        (templated)
    :param include_link: whether the message ends with a link to the DAG run, by ``[api] base_url``
    :param cpaas_conn_id: the connection to use (templated)
    :param context: the context, given by Airflow
    """

    channel: ClassVar[str]

    def __init__(
        self,
        *,
        recipients: str | Sequence[str],
        content: str | None = None,
        sender_id: str | None = None,
        window: timedelta | float = DEFAULT_WINDOW,
        group: str | None = None,
        include_link: bool = True,
        cpaas_conn_id: str = DEFAULT_CONN_ID,
        context: Context | None = None,
    ) -> None:
        super().__init__(context=context)
        if not recipients:
            raise ValueError("recipients is empty.")
        seconds = window.total_seconds() if isinstance(window, timedelta) else window
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= 86400:
            raise ValueError(f"window must be a timedelta or seconds, from 0 to one day; it is {window!r}.")
        self.recipients = recipients
        self.content = content
        self.sender_id = sender_id
        self.window = timedelta(seconds=seconds)
        self.group = group
        self.include_link = bounds.flag("include_link", include_link)
        self.cpaas_conn_id = cpaas_conn_id

    def __call__(self, *args: Any) -> None:
        """Notify. Airflow passes the context, or the four arguments of a missed SLA.

        This does not change the notifier. Airflow's own method renders the fields in place, so a second alert of the
        same process would have the text of the first.
        """
        names = ("dag", "task_list", "blocking_task_list", "blocking_tis")
        self.notify(args[0] if len(args) == 1 else dict(zip(names, args, strict=True)))  # type: ignore[arg-type]

    def __await__(self) -> Generator[Any, None, None]:
        """Notify on the event loop of the triggerer."""
        return self.async_notify(self.context).__await__()

    def notify(self, context: Context) -> None:
        """Send a notification about an alert, or leave the alert to the process that sends the next one."""
        for seconds in self._run(context):
            time.sleep(seconds)

    async def async_notify(self, context: Context) -> None:
        """Do what ``notify`` does. It waits on the event loop, and reads, writes and sends in threads."""
        waits = await asyncio.to_thread(self._run, context)
        while (seconds := await asyncio.to_thread(next, waits, None)) is not None:  # noqa: ASYNC110 - of a database
            await asyncio.sleep(seconds)

    def _render(self, template: jinja2.Template, context: Any, dag: Any = None) -> Any:
        """Render one template, in a DAG with native rendering too."""
        from cpaas_provider._common.rendering import render

        return render(self, template, context)

    def _run(self, context: Context) -> Iterator[float]:
        from cpaas_provider.notifications._runtime.run import run_notifier

        return run_notifier(self, context)
