"""The ASGI application: the service, the control API under /_control/ and the inbox page at /."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from cpaas_sandbox import scheduler
from cpaas_sandbox.control.app import control_app
from cpaas_sandbox.core import state
from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.core.errors import FieldError, ServiceError
from cpaas_sandbox.faults.kinds import Stage
from cpaas_sandbox.faults.rules import Rule
from cpaas_sandbox.page import PAGES
from cpaas_sandbox.reports.dispatcher import Dispatcher
from cpaas_sandbox.service.http import Answer, DisconnectedError, Message, Receive, Scope, Send, Wire
from cpaas_sandbox.service.openapi import document
from cpaas_sandbox.service.operations import Operation, route
from cpaas_sandbox.service.service import Service

log = logging.getLogger("cpaas_sandbox")


class App:
    """The whole application on one sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.service = Service(sandbox)
        self._dispatcher = Dispatcher(sandbox)
        self._control = control_app(sandbox)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            with contextlib.suppress(DisconnectedError, asyncio.CancelledError):
                wire = Wire(scope, receive, send, self.sandbox.cut_off)
                try:
                    body = await wire.body()
                    if scope["path"].startswith("/_control"):
                        await self._handle_control(body, scope, receive, send)
                    else:
                        await self._handle_service(wire, body)
                except ServiceError as error:
                    await wire.answer(self.service.refuse(error))

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Run scheduler and dispatcher from the server's start to its end."""
        await receive()
        sandbox = self.sandbox
        tasks = [asyncio.create_task(scheduler.run(sandbox)), asyncio.create_task(self._dispatcher.run())]
        for task in tasks:
            task.add_done_callback(_report_failure)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        state.begin_closing(sandbox)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._dispatcher.close()
        sandbox.database.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _handle_control(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Replay the body, which is already read within its bound, to the control API."""
        scheduler.tick(self.sandbox)
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Message:
            message = next(messages, None)
            return await receive() if message is None else message

        await self._control(scope, replay, send)

    async def _handle_service(self, wire: Wire, raw: bytes) -> None:
        """Serve the inbox page, the document or an operation; raise the 404 or 405 for anything else."""
        if wire.method == "GET" and wire.raw_path in PAGES:
            await wire.answer(PAGES[wire.raw_path])
            return
        if wire.method == "GET" and wire.raw_path == "/openapi.json":
            await wire.answer(Answer(200, document(self.service)))
            return
        operation, id_ = route(wire.method, wire.raw_path)
        await self._handle(wire, operation, id_, raw)
        # The operation's name instead of the path: paths and queries carry ids and numbers.
        log.info("%s %s", operation.name, wire.status or "dropped")

    async def _handle(self, wire: Wire, operation: Operation, id_: str, raw: bytes) -> None:
        """Check the key, choose the faults, process the request, and send the response or the fault's effect."""
        sandbox, name = self.sandbox, operation.name
        try:
            self.service.authorize(wire.header("authorization"))
        except ServiceError as error:
            sandbox.counters.add(f"requests.{name}", f"rejected.{name}")
            await wire.answer(self.service.refuse(error))
            return
        delays, fault = sandbox.faults.choose(name)
        for delay in delays:
            sandbox.counters.add("faults.latency")
            await delay.effect.show(wire, delay.params, Answer(200), "")
        if wire.cut_off.is_set() and not sandbox.closing.is_set():
            # The sandbox was reset during the delay: a request from before the reset must not change the new state.
            await wire.drop()
            return
        if fault is not None and fault.effect.stage is Stage.BEFORE:
            sandbox.counters.add(f"requests.{name}", f"rejected.{name}", f"faults.{fault.kind}")
            await fault.effect.show(wire, fault.params, Answer(200), "")
            return
        answer, accepted = self._process(wire, operation, id_, raw, fault)
        if fault is not None and accepted:
            await fault.effect.show(wire, fault.params, answer, operation.result)
        else:
            await wire.answer(answer)

    def _process(
        self, wire: Wire, operation: Operation, id_: str, raw: bytes, fault: Rule | None
    ) -> tuple[Answer, bool]:
        """Accept or reject in one transaction of message, charge and counters; return the response and if accepted."""
        sandbox, name = self.sandbox, operation.name
        scheduler.tick(sandbox)
        try:
            with sandbox.database.transaction():
                try:
                    request = self.service.read(operation, id_, wire.query, raw)
                    answer, outcome = self.service.accept(operation, request), "accepted"
                    if fault is not None:
                        sandbox.counters.add(f"faults.{fault.kind}")
                except ServiceError as error:
                    answer, outcome = self.service.refuse(error), "rejected"
                    if fault is not None:
                        fault.take_back()  # a fault after acceptance needs an accepted request
                sandbox.counters.add(f"requests.{name}", f"{outcome}.{name}")
        except Exception:
            log.exception("%s failed", name)
            failure = ServiceError(500, "Internal error", [FieldError("request", "the sandbox failed", "internal")])
            return self.service.refuse(failure), False
        return answer, outcome == "accepted"


def _report_failure(task: asyncio.Task[None]) -> None:
    """Log the exception that ended the scheduler or the dispatcher; a cancellation at the server's end is no error."""
    if not task.cancelled() and task.exception() is not None:
        log.error("airtime purchases or delivery reports have stopped", exc_info=task.exception())
