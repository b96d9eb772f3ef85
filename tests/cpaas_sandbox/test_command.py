"""The program: its options, its end, and state that survives it."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from cpaas_sandbox.__main__ import main
from tests.cpaas_sandbox.conftest import ADA, KEY, Harness, Raw
from tests.cpaas_sandbox.receiver import Receiver
from tests.waiting import until

COMMAND = [sys.executable, "-m", "cpaas_sandbox"]


@contextmanager
def program(*options: str) -> Iterator[tuple[subprocess.Popen[str], Harness]]:
    """Run the program on a free port; yield it and a client."""
    command = [*COMMAND, "--port", "0", "--api-key", KEY, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line
        harness = Harness(found.group())
        until(lambda: harness.control("GET", "health")["status"] == "ok")
        yield process, harness
    finally:
        process.kill()
        process.wait(10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_program_ends_quietly_while_a_response_stalls(number: signal.Signals) -> None:
    with program() as (process, sandbox):
        sandbox.fault("send_sms", "stall_body", seconds=300)
        with sandbox.http.stream(
            "POST", "/sms/send", json={"recipients": ADA, "sender_id": "Acme", "content": "x"}
        ) as answer:
            assert answer.status_code == 200
            process.send_signal(number)
            process.wait(10)
        assert process.stdout is not None
        assert process.stdout.read() == ""
        assert process.returncode == 0


def test_clients_that_disconnect_midway_are_not_logged() -> None:
    with program() as (process, sandbox):
        body = b'{"recipients": "2348030000001", "sender_id": "Acme", "content": "x"}'
        for kind, figures in {
            "stall_body": {"seconds": 300},
            "slow_drip": {"seconds": 120},
            "latency": {"ms": 300},
        }.items():
            sandbox.fault("send_sms", kind, times=1, **figures)
            raw = Raw(sandbox)
            raw.ask("POST", "/sms/send", body)
            if kind != "latency":
                assert raw.socket.recv(10)
            raw.socket.close()
        until(lambda: sandbox.counters()["sms"]["requests"] == 3)
        process.send_signal(signal.SIGINT)
        process.wait(10)
        assert process.stdout is not None
        assert process.stdout.read() == ""


def test_kill_loses_no_accepted_request(tmp_path: Path) -> None:
    database = str(tmp_path / "state.sqlite")
    with program("--db", database) as (process, sandbox):
        sandbox.control("PUT", "balance", {"balance": 100})
        sandbox.settings(otp_status_mode="sent")
        sent = sandbox.sms(recipients=ADA, external_ref="r").json()
        token = sandbox.ok("POST", "/otp/request_token", {"recipient": ADA})["id"]
        row = sandbox.ok("POST", "/lists/contact/rows", {"columns": {}})["row"]
        counters = sandbox.counters()
        process.kill()
        process.wait(10)
    with program("--db", database) as (_, sandbox):
        assert sandbox.counters() == counters
        assert sandbox.inbox("sms", external_ref="r")[0]["message_id"] == sent["id"]
        assert sandbox.ok("GET", f"/otp/{token}")["recipient"] == ADA
        assert sandbox.ok("GET", f"/lists/contact/row/{row['id']}")["row"] == row
        assert sandbox.control("GET", "settings")["otp_status_mode"] == "sent"


def test_options_reach_the_service() -> None:
    with program("--balance", "7.5", "--set", "envelope=true", "--set", "airtime_guard_seconds=10") as (_, sandbox):
        for _ in range(2):
            assert sandbox.counters()["balance"] == 7.5
            settings = sandbox.control("GET", "settings")
            assert (settings["envelope"], settings["airtime_guard_seconds"]) == (True, 10.0)
            sandbox.control("POST", "reset")  # returns to how it was started


def test_webhook_of_an_option_is_called_also_after_a_reset(receiver: Receiver) -> None:
    secret = ["--webhook-secret", "whsec_by_option", "--signature-header", "X-Of-Ours"]
    with program("--webhook-url", receiver.url, *secret) as (_, sandbox):
        for number in (1, 2):
            sandbox.sms()
            until(lambda: sandbox.counters()["reports"]["acknowledged"] == 1)
            assert len(receiver.received) == number
            assert "x-of-ours" in receiver.received[-1].headers
            sandbox.control("POST", "reset")


def test_reports_and_webhook_survive_a_kill(tmp_path: Path, receiver: Receiver) -> None:
    database = str(tmp_path / "state.sqlite")
    receiver.answer = 503
    with program("--db", database) as (process, sandbox):
        sandbox.settings(webhook_url=receiver.url, webhook_secret="whsec_kept_in_file")
        sandbox.sms(callback=receiver.url)
        until(lambda: sandbox.counters()["reports"]["refused"] == 2)
        process.kill()
        process.wait(10)
    receiver.answer = 200
    with program("--db", database) as (_, sandbox):
        assert sandbox.control("GET", "settings")["webhook_url"] == receiver.url
        sandbox.advance(3600)
        assert sandbox.reported() == {
            "booked": 2, "pending": 0, "sent": 4, "acknowledged": 2, "refused": 2, "given_up": 0,
        }  # fmt: skip
        signed = [one for one in receiver.received if "x-signature" in one.headers]
        assert len(signed) == 2
        assert signed[0].headers["x-signature"] == signed[1].headers["x-signature"]


def test_file_of_the_first_version_is_migrated(tmp_path: Path, receiver: Receiver) -> None:
    path = tmp_path / "older.sqlite"
    with program("--db", str(path)) as (_, sandbox):
        record = sandbox.sms(external_ref="kept").json()
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in (
            "DROP TABLE reports",
            "CREATE TABLE callbacks (seq INTEGER PRIMARY KEY, url TEXT)",
            "INSERT INTO callbacks (url) VALUES ('http://127.0.0.1:9/')",
            "INSERT INTO counters VALUES ('callbacks.failed', 3)",
            "ALTER TABLE deliveries DROP COLUMN reason",
            "ALTER TABLE airtime DROP COLUMN reason",
            "ALTER TABLE state RENAME TO keep",
            "UPDATE keep SET value = json_set(value, '$.callback_attempts', 3) WHERE name = 'settings'",
            "PRAGMA user_version = 1",
        ):
            connection.execute(statement)
    with program("--db", str(path)) as (_, sandbox):
        assert sandbox.inbox("sms")[0]["message_id"] == record["id"]
        assert "callbacks" not in sandbox.counters()
        assert "callback_attempts" not in sandbox.control("GET", "settings")
        sandbox.sms(callback=receiver.url)
        until(lambda: sandbox.counters()["reports"]["acknowledged"] == 1)


@pytest.mark.parametrize(
    ("version", "statements"),
    [
        (2, ["ALTER TABLE reports RENAME COLUMN endpoint TO door", "ALTER TABLE state RENAME TO keep"]),
        (3, ["ALTER TABLE state RENAME TO keep"]),
    ],
)
def test_file_of_an_earlier_version_keeps_reports_settings_and_money(
    tmp_path: Path, version: int, statements: list[str]
) -> None:
    path = tmp_path / "older.sqlite"
    with program("--db", str(path)) as (_, sandbox):
        sandbox.settings(otp_status_mode="sent")
        sandbox.control("PUT", "prices", {"sms": 1})
        sandbox.sms(callback="http://127.0.0.1:9/")
        table = sandbox.ok("GET", "/lists/contact")
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in (*statements, f"PRAGMA user_version = {version}"):
            connection.execute(statement)
    with program("--db", str(path)) as (_, sandbox):
        assert [one["endpoint"] for one in sandbox.inbox("reports")] == ["callback"]
        assert sandbox.control("GET", "settings")["otp_status_mode"] == "sent"
        assert (sandbox.counters()["charged"], sandbox.control("GET", "prices")["sms"]) == (1.0, 1.0)
        assert sandbox.ok("GET", "/lists/contact") == table


def modes(database: Path) -> dict[str, int]:
    """Return the modes of a database file and of the files beside it."""
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in database.parent.glob(f"{database.name}*")}


def test_new_database_is_readable_by_its_owner_only_from_the_first_byte(tmp_path: Path) -> None:
    """The hook sees the file's mode before SQLite opens it, so before it has a byte."""
    path = tmp_path / "state.sqlite"
    script = f"""
import os, sys
os.umask(0)
sys.addaudithook(lambda event, _: event == "sqlite3.connect" and print(oct(os.stat({str(path)!r}).st_mode)[-3:]))
from cpaas_sandbox.core.database import Database
database = Database({str(path)!r})
database.save("name", "value")
print(*(oct(os.stat({str(path)!r} + suffix).st_mode)[-3:] for suffix in ("", "-wal", "-shm")))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["600"] * 4


def test_database_of_a_killed_sandbox_is_taken_from_other_users(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    with program("--db", str(path)) as (_, sandbox):
        sandbox.sms(external_ref="kept")
    before = modes(path)
    assert set(before) == {path.name, f"{path.name}-wal", f"{path.name}-shm"}
    for name in before:
        (tmp_path / name).chmod(0o644)
    with program("--db", str(path)) as (_, sandbox):
        assert sandbox.inbox("sms", external_ref="kept")
        assert modes(path) == dict.fromkeys(before, 0o600)


def test_database_named_like_memory_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with program("--db", ":memory:") as (_, sandbox):
        sandbox.sms(external_ref="kept")
    with program("--db", ":memory:") as (_, sandbox):
        assert sandbox.inbox("sms", external_ref="kept")


def test_other_host_is_served_if_its_option_allows_it() -> None:
    with program("--allow-host", "sandbox", "--allow-host", "[fd00::1]") as (_, sandbox):
        hosts = ("sandbox:8025", "[fd00::1]", "localhost", "127.0.0.2", "other")
        served = [sandbox.call("GET", "/_control/health", headers={"Host": host}).status_code for host in hosts]
        assert served == [200, 200, 200, 200, 421]


@pytest.mark.parametrize("options", [[], ["--access-log"]])
def test_log_shows_no_recipient_and_no_content(options: list[str]) -> None:
    with program(*options) as (process, sandbox):
        sandbox.sms(content="secret words")
        sandbox.ok("GET", "/otp/get-by-recipient", params={"recipient": ADA})
        sandbox.call("POST", "/sms/send", {"recipients": "x" + ADA})
        process.send_signal(signal.SIGINT)
        process.wait(10)
        assert process.stdout is not None
        logged = [line.split()[-2:] for line in process.stdout.read().splitlines()]
        assert logged == ([["send_sms", "200"], ["find_otps", "200"], ["send_sms", "400"]] if options else [])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "70000", "--api-key", "k"], "not a port"),
        (["--port", "http", "--api-key", "k"], "not a port"),
        (["--api-key", "k"], "--port"),
        (["--port", "0"], "--api-key"),
        (["--port", "0", "--api-key", " k"], "ASCII"),
        (["--port", "0", "--api-key", "k", "--balance", "-1"], "not an amount"),
        (["--port", "0", "--api-key", "k", "--balance", "nan"], "not an amount"),
        (["--port", "0", "--api-key", "k", "--set", "colour=red"], "auth_scheme"),
        (["--port", "0", "--api-key", "k", "--set", "auth_scheme=none"], "'bearer', 'raw' or 'either'"),
        (["--port", "0", "--api-key", "k", "--set", "envelope=perhaps"], "envelope"),
        (["--port", "0", "--api-key", "k", "--host", "300.1.1.1"], "cannot listen"),
        (["--port", "0", "--api-key", "k", "--allow-host", "*"], "not a host"),
        (["--port", "0", "--api-key", "k", "--allow-host", "sandbox:8025"], "not a host"),
        (["--port", "0", "--api-key", "k", "--allow-host", "http://sandbox"], "not a host"),
        (["--port", "0", "--api-key", "k", "--allow-host", "fd00::1"], "not a host"),
        (["--port", "0", "--api-key", "k", "--webhook-url", "http://127.0.0.1:9/"], "also set webhook_secret"),
        (["--port", "0", "--api-key", "k", "--webhook-url", "hooks"], "http or https URL"),
        (["--port", "0", "--api-key", "k", "--webhook-secret", "short"], "8 to 200"),
        (["--port", "0", "--api-key", "k", "--signature-header", "X Y"], "header's name"),
        (["--port", "0", "--api-key", "k", "--set", "report_disorder=2"], "less than or equal to 1"),
        (["--port", "0", "--api-key", "k", "--db", "/nonexistent/folder/x.sqlite"], "cannot use --db"),
    ],
)
def test_invalid_arguments_are_refused_with_a_reason(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CPAAS_SANDBOX_API_KEY", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_port_in_use_is_an_error_that_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(SystemExit):
            main(["--port", port, "--api-key", "k"])
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in capsys.readouterr().err


def test_file_that_is_no_database_is_refused_and_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "notes.txt"
    other.touch(0o644)
    other.write_text("not a database, but something of mine " * 50)
    with pytest.raises(SystemExit):
        main(["--port", "0", "--api-key", "k", "--db", str(other)])
    assert "cannot use --db" in capsys.readouterr().err
    assert other.read_text().startswith("not a database")
    assert stat.S_IMODE(other.stat().st_mode) == 0o644
    newer = tmp_path / "newer.sqlite"
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(SystemExit):
        main(["--port", "0", "--api-key", "k", "--db", str(newer)])
    assert "another version" in capsys.readouterr().err


def test_help_names_every_setting() -> None:
    shown = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True, env={**os.environ})
    assert "--allow-remote-callbacks" in shown.stdout
    assert "otp_status_mode" in shown.stdout


def test_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**os.environ, "CPAAS_SANDBOX_API_KEY": KEY}
    process = subprocess.Popen([*COMMAND, "--port", "0"], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found
        headers = {"Authorization": f"Bearer {KEY}"}
        assert until(
            lambda: httpx.get(f"{found.group()}/lists/contact", headers=headers, trust_env=False).status_code == 200
        )
    finally:
        process.terminate()
        process.wait(10)
