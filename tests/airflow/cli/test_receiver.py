"""``airflow cpaas receiver`` as a program of its own: its responses, log lines and reactions to signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from cpaas_provider.cli.receiver.command import START_SECONDS
from cpaas_provider.database.database import open_database
from cpaas_provider.delivery.callbacks.tokens import CallbackToken, callback_url
from cpaas_provider.delivery.tracking.report_store import ReportStore
from tests.ports import reserved_ports
from tests.processes import Started
from tests.receivers import forking, workers
from tests.waiting import MOST_SECONDS, until

COMMAND = str(Path(sys.executable).with_name("airflow"))
CONNECTION = json.dumps({"conn_type": "cpaas", "host": "https://api.example.com", "password": "sk_test_received"})
TOKEN = CallbackToken("cpaas-alone", "cpaas-alone-1", 10)
REPORT = {"id": "m-1", "recipient": "+2348030000001", "status": "delivered"}
PATIENCE = 60.0


class Receiver:
    """A receiver that runs, its store and its output."""

    def __init__(self, folder: Path, *more: str, port: int | None = None) -> None:
        self.port = port or reserved_ports(1)[0]
        self.store = f"sqlite:///{folder / 'store.db'}"
        self.log = folder / "receiver.log"
        command = [COMMAND, "cpaas", "receiver", "--port", str(self.port), *more]
        environment = {**os.environ, "AIRFLOW__CPAAS__DATABASE": self.store, "AIRFLOW_CONN_CPAAS_ALONE": CONNECTION}
        self.started = Started.start(command, environment, self.log, Path.cwd())
        self.url = f"http://127.0.0.1:{self.port}"

    def callback(self, token: CallbackToken = TOKEN, prefix: str = "/cpaas") -> str:
        return callback_url(self.url + prefix, "cpaas_alone", "sk_test_received", token)

    def get(self, path: str) -> int:
        with suppress(httpx.TransportError):
            return httpx.get(self.url + path, trust_env=False, verify=False).status_code
        return 0

    def signal(self, number: signal.Signals) -> None:
        """Tell its first process, as a supervisor or a terminal does."""
        os.kill(self.started.session, number)

    def ended(self) -> int:
        """Return its exit status, once it and all its workers are gone."""
        statuses: list[int] = []

        def gone() -> bool:
            with suppress(ChildProcessError):
                pid, status = os.waitpid(self.started.session, os.WNOHANG)
                if pid:
                    statuses.append(os.waitstatus_to_exitcode(status))
            return bool(statuses) and not self.started.processes()

        until(gone)
        return statuses[0]

    def bodies(self) -> list[Any]:
        from sqlalchemy import select

        from cpaas_provider.database.schema.delivery import reports

        with open_database(self.store) as database, database.connect() as reading:
            return [json.loads(body) for body in reading.execute(select(reports.c.body)).scalars()]


@contextmanager
def running(folder: Path, *more: str, prefix: str = "/cpaas", port: int | None = None) -> Iterator[Receiver]:
    receiver = Receiver(folder, *more, port=port)
    try:
        ready = receiver.started.wait_until(lambda: receiver.get(f"{prefix}/health") == 200, MOST_SECONDS)
        assert ready, receiver.log.read_text()
        yield receiver
    finally:
        receiver.started.stop()


@pytest.mark.usefixtures("airflow_db")
class TestReceiver:
    def test_receiver_serves_airflow_s_paths_and_stores_all_reports_before_it_ends(self, tmp_path: Path) -> None:
        with running(tmp_path) as receiver:
            assert httpx.post(receiver.callback(), json=REPORT, trust_env=False).json() == {"status": "stored"}
            assert [receiver.get(path) for path in ("/cpaas/docs", "/cpaas/openapi.json", "/", "/health")] == [404] * 4
            with open_database(receiver.store) as database:
                handshake = httpx.post(receiver.callback(CallbackToken("handshake", "handshake", 1)), trust_env=False)
                assert handshake.json() == {"database": database.identity}
            with socket.create_connection(("127.0.0.1", receiver.port), timeout=PATIENCE) as half_sent:
                raw = json.dumps({**REPORT, "id": "m-2"}).encode()
                path = receiver.callback().removeprefix(receiver.url)
                head = (
                    f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}"
                )
                half_sent.sendall(head.encode() + b"\r\n\r\n" + raw[:10])
                assert receiver.get("/cpaas/health") == 200
                receiver.signal(signal.SIGTERM)
                until(lambda: receiver.get("/cpaas/health") == 0)
                half_sent.sendall(raw[10:])
                assert half_sent.makefile("rb").readline().startswith(b"HTTP/1.1 200")
            assert receiver.ended() == 0
        assert [body["id"] for body in receiver.bodies()] == ["m-1", "m-2"]
        said = receiver.log.read_text()
        assert f"at http://127.0.0.1:{receiver.port}/cpaas with 1 worker(s).\nStoring them in {receiver.store}" in said
        assert "POST /cpaas/callback/...\n  POST /cpaas/webhook/...\n" in said
        for secret in (TOKEN.reference, "2348030000001", "sk_test_received"):
            assert secret not in said

    def test_several_workers_share_one_database_and_ctrl_c_ends_them_all(self, tmp_path: Path) -> None:
        with running(tmp_path, "--workers", "2", "--prefix", "reports/", "--describe", prefix="/reports") as receiver:
            url = receiver.callback(prefix="/reports")
            for number in range(20):
                answer = httpx.post(url, json={**REPORT, "id": f"m-{number}"}, trust_env=False, verify=False)
                assert answer.status_code == 200
            assert receiver.get("/reports/openapi.json") == 200
            assert receiver.get("/cpaas/health") == 404
            receiver.signal(signal.SIGINT)
            assert receiver.ended() == 0
        assert len(receiver.bodies()) == 20
        assert TOKEN.reference not in receiver.log.read_text()


@pytest.mark.usefixtures("airflow_db")
class TestAttacked:
    def test_endless_head_costs_little_memory_and_half_open_connections_block_no_sender(self, tmp_path: Path) -> None:
        with running(tmp_path) as receiver, ExitStack() as crowd:
            (first,) = [one for one in receiver.started.processes() if one.pid == receiver.started.session]
            before = first.memory_info().rss
            for begun in (b"POST /", b"POST / HTTP/1.1\r\nX: "):
                with socket.create_connection(("127.0.0.1", receiver.port), timeout=PATIENCE) as endless:
                    sent = 0
                    with suppress(ConnectionError):
                        endless.sendall(begun)
                        while sent < 100:
                            endless.sendall(b"a" * 1024 * 1024)
                            sent += 1
                assert sent < 100
            assert first.memory_info().rss - before < 20 * 1024 * 1024
            for _ in range(520):
                half_open = crowd.enter_context(socket.create_connection(("127.0.0.1", receiver.port), PATIENCE))
                half_open.sendall(b"POST / HT")
            for number in range(10):
                body = {**REPORT, "id": f"m-{number}"}
                assert httpx.post(receiver.callback(), json=body, trust_env=False, timeout=5).status_code == 200
        assert len(receiver.bodies()) == 10

    def test_request_that_the_server_cannot_use_leaves_no_line_in_the_log(self, tmp_path: Path) -> None:
        upgrade = b"GET /cpaas/health HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        with running(tmp_path) as receiver:
            before = receiver.log.read_text()
            for request in (upgrade, upgrade.replace(b"websocket", b"h2c"), b"nonsense\r\n\r\n"):
                with socket.create_connection(("127.0.0.1", receiver.port), timeout=PATIENCE) as connection:
                    connection.sendall(request)
                    assert connection.recv(100)
            assert receiver.log.read_text() == before

    def test_workers_of_a_supervisor_that_was_killed_end_and_it_can_be_started_again(self, tmp_path: Path) -> None:
        with running(tmp_path, "--workers", "2") as receiver:
            assert httpx.post(receiver.callback(), json=REPORT, trust_env=False).status_code == 200
            receiver.signal(signal.SIGKILL)
            with running(tmp_path, "--workers", "2", port=receiver.port) as again:
                until(lambda: not receiver.started.processes())
                # Until then it may have been the old ones who answered.
                until(lambda: again.get("/cpaas/health") == 200)
                assert httpx.post(again.callback(), json={**REPORT, "id": "m-2"}, trust_env=False).status_code == 200
        assert [body["id"] for body in receiver.bodies()] == ["m-1", "m-2"]


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
class TestForkedWorkers:
    def post(self, receiver: Receiver, number: int) -> int:
        with suppress(httpx.TransportError):
            body = {**REPORT, "id": f"m-{number}"}
            return httpx.post(receiver.callback(), json=body, trust_env=False, timeout=PATIENCE).status_code
        return 0

    def wait_for_workers(self, receiver: Receiver, *, without: Set[int] = frozenset()) -> set[int]:
        until(lambda: len(pids(receiver) - without) == 2)
        return pids(receiver)

    @pytest.fixture(scope="class")
    def receiver(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
        """A receiver with two workers, however often they are replaced."""
        with running(tmp_path_factory.mktemp("forked"), "--workers", "2") as receiver:
            yield receiver

    def test_workers_are_forked_by_a_process_with_one_thread_and_no_open_files(self, receiver: Receiver) -> None:
        self.wait_for_workers(receiver)
        assert self.post(receiver, 1) == 200
        forker = forking(receiver.started.session)
        assert forker is not None
        assert {worker.ppid() for worker in workers(receiver.started.session)} == {forker.pid}
        assert forker.num_threads() == 1
        assert forker.net_connections("inet") == []
        assert [file.path for file in forker.open_files() if file.path != str(receiver.log)] == []

    def test_modules_of_workers_are_imported_before_the_fork(self) -> None:
        # As the command does before it starts workers: they find the tables there.
        with open_database() as database:
            ReportStore(database)
        code = (
            "import sys; from cpaas_provider.cli.receiver import preloaded; before = set(sys.modules);"
            "from cpaas_provider.cli.receiver.command import application; from fastapi.testclient import TestClient;"
            f"client = TestClient(application()); client.post({self.path()!r}, json={REPORT!r}).raise_for_status();"
            "print(sorted(name for name in set(sys.modules) - before if name.startswith(('airflow', 'cpaas', 'sql')) "
            # The numbering plan of a region is loaded with its first number.
            "and '._numbering_plans.data.' not in name))"
        )
        env = {**os.environ, "AIRFLOW_CONN_CPAAS_ALONE": CONNECTION, "CPAAS_RECEIVER_PREFIX": "/cpaas"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr

    def path(self) -> str:
        return callback_url("/cpaas", "cpaas_alone", "sk_test_received", TOKEN)

    def test_killed_worker_is_replaced(self, receiver: Receiver) -> None:
        before = self.wait_for_workers(receiver)
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        assert self.wait_for_workers(receiver, without={victim}) & before == before - {victim}
        assert self.post(receiver, 2) == 200

    def test_worker_killed_during_a_health_check_is_replaced(self, receiver: Receiver) -> None:
        before = self.wait_for_workers(receiver)
        victim = min(before)
        os.kill(victim, signal.SIGSTOP)
        # The supervisor asks twice a second.
        time.sleep(3)
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        assert self.wait_for_workers(receiver, without={victim}) & before == before - {victim}
        # The supervisor waits for the response to a health check that long.
        assert time.monotonic() - killed < START_SECONDS / 2

    def test_all_workers_are_replaced_after_their_forking_process_is_killed(self, receiver: Receiver) -> None:
        before = self.wait_for_workers(receiver)
        forker = forking(receiver.started.session)
        assert forker is not None
        forker.kill()
        self.wait_for_workers(receiver, without=before)
        until(lambda: not before & {process.pid for process in receiver.started.processes()})
        assert self.post(receiver, 3) == 200

    def test_signal_to_all_processes_ends_the_receiver_with_all_reports_stored(self, tmp_path: Path) -> None:
        with running(tmp_path, "--workers", "2") as receiver:
            self.wait_for_workers(receiver)
            with socket.create_connection(("127.0.0.1", receiver.port), timeout=PATIENCE) as half_sent:
                raw = json.dumps(REPORT).encode()
                head = f"POST {self.path()} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                half_sent.sendall(f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw[:10])
                until(lambda: receiver.get("/cpaas/health") == 200)
                for process in receiver.started.processes():
                    process.send_signal(signal.SIGTERM)
                # The one that has nothing in hand.
                until(lambda: len(pids(receiver)) == 1)
                half_sent.sendall(raw[10:])
                assert half_sent.makefile("rb").readline().startswith(b"HTTP/1.1 200")
            assert receiver.ended() == 0
        assert [body["id"] for body in receiver.bodies()] == ["m-1"]


def pids(receiver: Receiver) -> set[int]:
    return {one.pid for one in workers(receiver.started.session)}


@pytest.mark.usefixtures("airflow_db")
class TestStartFailures:
    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command, env = [COMMAND, "cpaas", "receiver", *arguments], {**os.environ, **environment}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    @pytest.mark.parametrize("workers", ["1", "2"])
    def test_port_in_use_ends_the_command(self, tmp_path: Path, workers: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            # It returns when no process is left that could write.
            store = f"sqlite:///{tmp_path / 'store.db'}"
            done = self.run("--port", str(port), "--workers", workers, AIRFLOW__CPAAS__DATABASE=store)
        assert done.returncode == 1
        assert f"Cannot listen on 127.0.0.1:{port} (Address already in use)" in done.stderr
        assert "Traceback" not in done.stderr

    def test_unusable_database_ends_the_command(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        done = self.run("--port", "8099", AIRFLOW__CPAAS__DATABASE=f"sqlite:///{tmp_path / 'file' / 'store.db'}")
        assert done.returncode == 1
        assert "The database cannot be created" in done.stderr
        assert "Traceback" not in done.stderr
