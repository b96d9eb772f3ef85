"""A plugin of pytest that tests DAGs against the sandbox: docs/guides/test-your-dags.md.

pytest loads this module in every run where the distribution is installed. So it imports nothing but pytest, and does
nothing until a test requests one of its fixtures.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cpaas_sandbox.pytest_plugin._airflow.home import AirflowHomes
    from cpaas_sandbox.pytest_plugin._airflow.runs import DagRunResult, RunDag, TaskError
    from cpaas_sandbox.pytest_plugin.clock import Clock
    from cpaas_sandbox.pytest_plugin.errors import DagFailedError, DagTimeoutError, NotSentError, SandboxError
    from cpaas_sandbox.pytest_plugin.handle import Sandbox
    from cpaas_sandbox.pytest_plugin.items import Airtime, Email, Otp, Sms

__all__ = [
    "Airtime",
    "Clock",
    "DagFailedError",
    "DagRunResult",
    "DagTimeoutError",
    "Email",
    "NotSentError",
    "Otp",
    "RunDag",
    "Sandbox",
    "SandboxError",
    "Sms",
    "TaskError",
]

_HOMES = {
    **dict.fromkeys(("DagFailedError", "DagTimeoutError", "NotSentError", "SandboxError"), "errors"),
    **dict.fromkeys(("Airtime", "Email", "Otp", "Sms"), "items"),
    **dict.fromkeys(("DagRunResult", "RunDag", "TaskError"), "_airflow.runs"),
    "Clock": "clock",
    "Sandbox": "handle",
}

_MARKER = "cpaas(conn_id=..., region=..., extra=...): the Airflow connection of the fixture sandbox in this test"
_OPTIONS = {
    "cpaas_conn_id": "id of the Airflow connection that the fixture sandbox sets (default: cpaas_default)",
    "cpaas_region": "country of phone numbers in national form, such as NG (default: none)",
    "cpaas_extra": "extras of the connection that the fixture sandbox sets, as a JSON object",
    "cpaas_airflow": "temporary: run_dag uses an Airflow home and database of its own (default). "
    "own: it uses those that are configured",
}


def __getattr__(name: str) -> Any:
    """Import a public class when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the configuration file."""
    for name, text in _OPTIONS.items():
        parser.addini(name, text, default="")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _MARKER)


@contextlib.contextmanager
def _open_sandbox(server: tuple[str, str], config: pytest.Config, marked: dict[str, Any]) -> Iterator[Sandbox]:
    """Reset a sandbox and set the connection to it until the block ends."""
    from cpaas_sandbox.pytest_plugin.handle import DEFAULT_CONN_ID, Sandbox

    unknown = sorted(marked.keys() - {"conn_id", "region", "extra"})
    if unknown:
        raise pytest.UsageError(f"The marker cpaas has no {', '.join(unknown)}: it takes conn_id, region and extra.")
    text = config.getini("cpaas_extra")
    try:
        configured = json.loads(text) if text else {}
    except ValueError:
        configured = None
    if not isinstance(configured, dict):
        raise pytest.UsageError('cpaas_extra is not a JSON object, such as {"sender_id": "Example"}.')
    conn_id = marked.get("conn_id") or config.getini("cpaas_conn_id") or DEFAULT_CONN_ID
    region = marked.get("region") or config.getini("cpaas_region") or None
    with pytest.MonkeyPatch.context() as patch:
        sandbox = Sandbox(*server, conn_id, region, configured | marked.get("extra", {}), patch.setenv)
        sandbox.reset()
        sandbox.connect()
        yield sandbox


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the arguments of the marker; those of a test take precedence over those of its class and module."""
    marked: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("cpaas"))):
        if marker.args:
            raise pytest.UsageError("The marker cpaas takes arguments by name: conn_id, region and extra.")
        marked = {**marked, **marker.kwargs, "extra": {**marked.get("extra", {}), **marker.kwargs.get("extra", {})}}
    return marked


@pytest.fixture(scope="session")
def _cpaas_server() -> Iterator[tuple[str, str]]:
    """Run the sandbox of ``cpaas_sandbox`` on a free port; yield its base URL and API key."""
    from cpaas_sandbox.pytest_plugin._server import sandbox_server

    with sandbox_server() as server:
        yield server


@pytest.fixture
def cpaas_sandbox(_cpaas_server: tuple[str, str], request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Yield a sandbox without messages, with the Airflow connection to it, for one test."""
    with _open_sandbox(_cpaas_server, request.config, _marked(request)) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(cpaas_sandbox: Sandbox) -> Sandbox:
    """Return ``cpaas_sandbox`` under a shorter name."""
    return cpaas_sandbox


@pytest.fixture(scope="session")
def cpaas_session_sandbox(pytestconfig: pytest.Config) -> Iterator[Sandbox]:
    """Yield a sandbox of its own for the whole session, which nothing resets, with the connection to it."""
    from cpaas_sandbox.pytest_plugin._server import sandbox_server

    with sandbox_server() as server, _open_sandbox(server, pytestconfig, {}) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def _cpaas_homes(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> AirflowHomes | None:
    """Return what makes Airflow homes; ``None`` where the user's own is used."""
    choice = pytestconfig.getini("cpaas_airflow") or "temporary"
    if choice not in ("temporary", "own"):
        raise pytest.UsageError(f"cpaas_airflow is {choice!r}; it must be temporary or own.")
    try:
        import airflow.sdk  # noqa: F401
    except ImportError as error:
        pytest.fail(f"run_dag needs Airflow, which cannot be imported: {error}", pytrace=False)
    if choice == "own":
        return None
    from cpaas_sandbox.pytest_plugin._airflow.home import AirflowHomes

    return AirflowHomes(tmp_path_factory.mktemp("airflow"))


@contextlib.contextmanager
def _open_run_dag(homes: AirflowHomes | None) -> Iterator[RunDag]:
    from cpaas_sandbox.pytest_plugin._airflow.runs import RunDag

    with homes.open() if homes else contextlib.nullcontext():
        yield RunDag()


@pytest.fixture
def cpaas_run_dag(_cpaas_homes: AirflowHomes | None) -> Iterator[RunDag]:
    """Yield a function that runs DAGs, in an Airflow whose database is empty at the start of each test."""
    with _open_run_dag(_cpaas_homes) as run_dag:
        yield run_dag


@pytest.fixture
def run_dag(cpaas_run_dag: RunDag) -> RunDag:
    """Return ``cpaas_run_dag`` under a shorter name."""
    return cpaas_run_dag


@pytest.fixture(scope="session")
def cpaas_session_run_dag(_cpaas_homes: AirflowHomes | None) -> Iterator[RunDag]:
    """Yield a function that runs DAGs, in one Airflow for the whole session."""
    with _open_run_dag(_cpaas_homes) as run_dag:
        yield run_dag


@pytest.fixture
def cpaas_receiver(cpaas_sandbox: Sandbox, cpaas_run_dag: RunDag) -> Iterator[str]:
    """Run a receiver of delivery reports, set it as the connection's ``callback_url``, and yield that URL."""
    import secrets

    from cpaas_sandbox.pytest_plugin._airflow.receiver import receiver_server

    with receiver_server() as url:
        cpaas_sandbox.connect(callback_url=url, callback_secret=secrets.token_hex(16))
        yield url
