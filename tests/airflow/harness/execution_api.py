"""A shortcut to Airflow's execution API within this process, for ``run_task_in_process`` and ``dag.test()``.

A try asks it ten times and more, and more than half of what a request takes goes into threads and signatures. The app,
its routes and its database are Airflow's own.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import Any

import anyio.to_thread
import httpx
from airflow.api_fastapi.execution_api import routes, versions
from airflow.api_fastapi.execution_api.app import CorrelationIdMiddleware, JWTReissueMiddleware
from airflow.sdk.api.datamodels._generated import API_VERSION
from airflow.sdk.execution_time.supervisor import in_process_api_server
from fastapi.dependencies import utils
from packaging.version import Version

import airflow

_MOST_DEPENDENCIES = 512
# They are about what comes over a network: tokens that run out, and an id for each request in the log of a server.
_OF_NETWORKS = (CorrelationIdMiddleware, JWTReissueMiddleware)
# How Cadwyn tags a route that the newest version has not. Were it another tag, Cadwyn would refuse to build.
_OLDER_ONLY = "_CADWYN_DELETED_ROUTE"


class _Transport(httpx.BaseTransport):
    """Carries each request to an ASGI app in one step, on an event loop in a thread of its own.

    Airflow's own takes eight steps from thread to thread. And its loop has no main task, so that each request begins
    new worker threads and ends them.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._asgi = httpx.ASGITransport(app)
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self.thread = threading.Thread(target=self._run, name="execution-api", daemon=True)
        self.thread.start()
        self._ready.wait()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._app.router.lifespan_context(self._app):
            self._ready.set()
            await asyncio.Event().wait()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return asyncio.run_coroutine_threadsafe(self._respond(request), self._loop).result()

    async def _respond(self, request: httpx.Request) -> httpx.Response:
        response = await self._asgi.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        body = b"".join([part async for part in response.stream])
        return httpx.Response(response.status_code, headers=response.headers, content=body)


def shortcut_execution_api() -> None:
    """Have this process's tasks reach the execution API by the short way; in Airflow 3.4 they take the usual one.

    Airflow 3.4 sends bodies in parts, and asks for the version in each request. Its pre-releases still change.
    """
    if Version(airflow.__version__) >= Version("3.4.0.dev0"):
        return
    _build_one_version()
    api = in_process_api_server()
    api.app.user_middleware[:] = [layer for layer in api.app.user_middleware if layer.cls not in _OF_NETWORKS]
    api.transport = transport = _Transport(api.app)
    # What may block goes to worker threads, for the sake of other requests. Here there is one at a time.
    anyio.to_thread.run_sync = _run_sync_in(transport.thread, anyio.to_thread.run_sync)
    # Where any dependency is overridden, and Airflow overrides that of authorization, FastAPI looks at the signatures
    # of all of them again for each request. They stay what they are.
    utils.get_dependant = _cached(utils.get_dependant)


def _build_one_version() -> None:
    """Have Airflow build the version of the API that its own Task SDK asks for, and none for older ones.

    An older version is made by a walk through all routes and their models, and there are eight. A version's changes say
    how the one before it differs, so the newest needs none of them, nor routes that are there for older ones only.
    """
    if versions.bundle.versions[0].value == API_VERSION:
        newest = versions.Version(API_VERSION)
        versions.bundle = versions.VersionBundle(versions.HeadVersion(), newest)
        found = routes.execution_api_router.routes
        found[:] = [route for route in found if _OLDER_ONLY not in getattr(route, "tags", ())]


def _run_sync_in(thread: threading.Thread, run_sync: Any) -> Any:
    @functools.wraps(run_sync)
    async def run(function: Any, *arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is thread:
            return contextvars.copy_context().run(function, *arguments)
        return await run_sync(function, *arguments, **options)

    return run


def _cached(get_dependant: Any) -> Any:
    @functools.lru_cache(_MOST_DEPENDENCIES)
    def remembered(**parts: Any) -> Any:
        return get_dependant(**{name: list(part) if type(part) is tuple else part for name, part in parts.items()})

    @functools.wraps(get_dependant)
    def get(**parts: Any) -> Any:
        return remembered(**{name: tuple(part) if isinstance(part, list) else part for name, part in parts.items()})

    return get
