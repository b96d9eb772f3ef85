"""The ASGI application: the service at the root paths, the control API and the inbox page beside it."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from cpaas_provider.sandbox import scheduler
from cpaas_provider.sandbox.control.app import control_app
from cpaas_provider.sandbox.core import state
from cpaas_provider.sandbox.core.context import Sandbox
from cpaas_provider.sandbox.core.errors import FieldError, ServiceError
from cpaas_provider.sandbox.faults.kinds import Stage
from cpaas_provider.sandbox.faults.rules import Rule
from cpaas_provider.sandbox.page import serve_page
from cpaas_provider.sandbox.reports.dispatcher import Dispatcher
from cpaas_provider.sandbox.service.http import Answer, DisconnectedError, Message, Receive, Scope, Send, Wire
from cpaas_provider.sandbox.service.openapi import document
from cpaas_provider.sandbox.service.operations import Operation, route
from cpaas_provider.sandbox.service.service import Service

log = logging.getLogger("cpaas_sandbox")


class App:
    """Everything the server serves."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.service = Service(sandbox)
        self._dispatcher = Dispatcher(sandbox)
        self._control = control_app(sandbox)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            with contextlib.suppress(DisconnectedError, asyncio.CancelledError):
                wire = Wire(scope, receive, send, self.sandbox.cut_off)
                if scope["path"].startswith("/_control"):
                    await self._handle_control(wire, scope, receive, send)
                else:
                    await self._handle_service(wire)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Start and end with the server."""
        await receive()
        sandbox = self.sandbox
        going = [asyncio.create_task(scheduler.run(sandbox)), asyncio.create_task(self._dispatcher.run())]
        for task in going:
            task.add_done_callback(_report_failure)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        state.begin_closing(sandbox)
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        await self._dispatcher.close()
        state.close(sandbox)
        await send({"type": "lifespan.shutdown.complete"})

    async def _handle_control(self, wire: Wire, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the control API its request, the body read within bounds."""
        try:
            body = await wire.body()
        except ServiceError as error:
            await wire.answer(self.service.refuse(error))
            return
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Message:
            message = next(messages, None)
            return await receive() if message is None else message

        await self._control(scope, replay, send)

    async def _handle_service(self, wire: Wire) -> None:
        try:
            raw = await wire.body()
            if wire.method == "GET" and await serve_page(wire):
                return
            if wire.method == "GET" and wire.raw_path == "/openapi.json":
                await wire.answer(Answer(200, document(self.service)))
                return
            operation, ids = route(wire.method, wire.raw_path)
        except ServiceError as error:
            await wire.answer(self.service.refuse(error))
            return
        await self._handle(wire, operation, ids, raw)
        # the operation's name, not the path: paths and queries carry ids and numbers
        log.info("%s %s", operation.name, wire.status or "dropped")

    async def _handle(self, wire: Wire, operation: Operation, ids: tuple[str, ...], raw: bytes) -> None:
        """Take a request through key, faults and handler to its answer, right or wrong."""
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
            # Reset meanwhile: the caller must not see what was asked before.
            await wire.drop()
            return
        if fault is not None and fault.effect.stage is Stage.BEFORE:
            sandbox.counters.add(f"requests.{name}", f"rejected.{name}", f"faults.{fault.kind}")
            await fault.effect.show(wire, fault.params, Answer(200), "")
            return
        answer, accepted = self._process(wire, operation, ids, raw, fault)
        if fault is not None and accepted:
            await fault.effect.show(wire, fault.params, answer, operation.result)
        else:
            await wire.answer(answer)

    def _process(
        self, wire: Wire, operation: Operation, ids: tuple[str, ...], raw: bytes, fault: Rule | None
    ) -> tuple[Answer, bool]:
        """Accept or refuse, in one transaction: what is stored, charged and counted is stored together."""
        sandbox, name = self.sandbox, operation.name
        scheduler.tick(sandbox)
        content_type = wire.header("content-type") or ""
        try:
            with sandbox.database.transaction():
                try:
                    request = self.service.read(operation, ids, wire.query, content_type, raw)
                    answer = self.service.accept(operation, request)
                except ServiceError as error:
                    answer, outcome = self.service.refuse(error), "rejected"
                    if fault is not None:
                        fault.take_back()  # it hits accepted requests only
                else:
                    outcome = "accepted"
                    if fault is not None:
                        sandbox.counters.add(f"faults.{fault.kind}")
                sandbox.counters.add(f"requests.{name}", f"{outcome}.{name}")
        except Exception:
            log.exception("%s failed", name)
            failure = ServiceError(500, "Internal error", [FieldError("request", "the sandbox failed", "internal")])
            return self.service.refuse(failure), False
        return answer, outcome == "accepted"


def _report_failure(task: asyncio.Task[None]) -> None:
    """Say so when airtime or reports have stopped for another reason than the server's end."""
    if not task.cancelled() and task.exception() is not None:
        log.error("delivery reports or airtime have stopped", exc_info=task.exception())
