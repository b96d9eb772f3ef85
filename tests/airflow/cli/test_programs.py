"""The commands for daily use as programs of their own: signals, pipes, and a machine where nothing is configured."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from cpaas_provider.database.database import open_database
from cpaas_provider.database.schema.campaigns import campaigns
from tests.airflow.harness.task_runner import digits, fault, forget_campaign_database, phone
from tests.airflow_home import settings_for
from tests.processes import Started
from tests.sandbox import Sandbox, connection_json
from tests.waiting import until

COMMAND = str(Path(sys.executable).with_name("airflow"))
Airflow = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def ctrl_c_handler() -> Iterator[None]:
    """Have programs heed Ctrl-C where the tests themselves run in the background of a shell, and ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def airflow(airflow_db: object, ctrl_c_handler: None, sandbox: Sandbox, tmp_path: Path) -> Airflow:
    """Start ``airflow cpaas ...`` with a connection to the sandbox."""
    # Another test may have stored its campaigns in another database, and a key is then refused here.
    forget_campaign_database()
    environment = {
        **os.environ,
        "AIRFLOW_CONN_CPAAS_DEFAULT": connection_json(sandbox.connection, sender_id="Shop"),
        "AIRFLOW__CPAAS__DATABASE": f"sqlite:///{tmp_path}/cpaas.db",
    }

    def start(*arguments: str, **more: str) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [COMMAND, "cpaas", *arguments]
        return subprocess.Popen(command, env={**environment, **more}, text=True, **pipes)

    return start


def ended(process: subprocess.Popen[str], typed: str = "") -> tuple[int, str, str]:
    """Return the exit status and what was printed."""
    out, err = process.communicate(typed)
    assert "Traceback" not in err
    return process.returncode, out, err


def message_count(sandbox: Sandbox, case: str) -> int:
    return int(sandbox.inbox("sms", recipient=digits(case))["total"])


def test_text_is_piped_in(airflow: Airflow, sandbox: Sandbox) -> None:
    status, out, err = ended(airflow("send-sms", phone("piped"), "--output", "json"), "Hello\n")
    assert (status, err) == (0, "")
    assert (json.loads(out)[0]["recipients"], message_count(sandbox, "piped")) == (1, 1)


def test_code_is_piped_in(airflow: Airflow, sandbox: Sandbox) -> None:
    status, out, err = ended(airflow("otp", "request", "-", "--output", "json"), phone("coded"))
    assert status == 0, err
    (record,) = json.loads(out)
    code = sandbox.inbox("otp", recipient=digits("coded"))["items"][0]["code"]
    status, out, err = ended(airflow("otp", "verify", record["id"], "--output", "json"), code)
    assert (status, json.loads(out)[0]["verified"], code in out + err) == (0, True, False)


def test_ctrl_c_waits_for_the_response(airflow: Airflow, sandbox: Sandbox) -> None:
    sandbox.control(*fault("send_sms", "slow_drip", seconds=3))
    sending = airflow("send-sms", phone("waited"), "--content", "Hello", "--output", "json")
    until(lambda: message_count(sandbox, "waited") == 1)
    sending.send_signal(signal.SIGINT)
    status, out, err = ended(sending)
    assert (status, json.loads(out)[0]["recipients"]) == (0, 1)
    assert err == "Stopping. A response to a request in flight is waited for, up to 10 seconds.\n"


def test_ctrl_c_waits_for_the_response_although_standard_error_is_closed(airflow: Airflow, sandbox: Sandbox) -> None:
    """As behind a pipe to a program that Ctrl-C ends, too."""
    sandbox.control(*fault("send_sms", "slow_drip", seconds=3))
    sending = airflow("send-sms", phone("unheard"), "--content", "Hello", "--output", "json")
    assert sending.stdout is not None
    assert sending.stderr is not None
    until(lambda: message_count(sandbox, "unheard") == 1)
    sending.stderr.close()
    sending.send_signal(signal.SIGINT)
    output = sending.stdout.read()
    assert (sending.wait(), json.loads(output)[0]["recipients"]) == (0, 1)


def test_unknown_outcome_has_its_status_although_standard_error_is_closed(airflow: Airflow, sandbox: Sandbox) -> None:
    sandbox.control(*fault("send_sms", "cut_after", times=1))
    sending = airflow("send-sms", phone("unread"), "--content", "Hello")
    assert sending.stdout is not None
    assert sending.stderr is not None
    sending.stderr.close()
    sending.stdout.read()
    assert sending.wait() == 3


def test_ctrl_c_while_the_service_asks_to_wait_sends_nothing_and_frees_the_key(
    airflow: Airflow, sandbox: Sandbox
) -> None:
    sandbox.control(*fault("send_sms", "rate_limit", retry_after=30))
    command = ("send-sms", phone("asked_to_wait"), "--content", "Hello", "--idempotency-key", "monday")
    sending = airflow(*command)
    until(lambda: sandbox.counters()["requests"].get("send_sms"))
    sending.send_signal(signal.SIGINT)
    status, out, err = ended(sending)
    assert (status, out, "Nothing was sent: the command was stopped by Ctrl-C." in err) == (130, "", True)
    sandbox.control("DELETE", "faults")
    status, _, err = ended(airflow(*command))
    assert (status, message_count(sandbox, "asked_to_wait")) == (0, 1), err


def test_second_ctrl_c_ends_it_with_an_unknown_outcome(airflow: Airflow, sandbox: Sandbox) -> None:
    sandbox.control(*fault("send_sms", "stall_body", seconds=60))
    key = ("--idempotency-key", "monday")
    sending = airflow("send-sms", phone("cut"), "--content", "Hello", *key)
    until(lambda: message_count(sandbox, "cut") == 1)
    sending.send_signal(signal.SIGINT)
    assert sending.stderr is not None
    assert sending.stderr.readline().startswith("Stopping.")
    sending.send_signal(signal.SIGINT)
    status, _, err = ended(sending)
    assert (status, "Outcome unknown: request cpaas-" in err) == (3, True)
    assert "Cause: A signal stopped the command before a response arrived." in err
    # The key outlives it: nothing is sent again.
    sandbox.control("DELETE", "faults")
    status, _, err = ended(airflow("send-sms", phone("cut"), "--content", "Hello", *key))
    assert (status, message_count(sandbox, "cut")) == (3, 1)


def test_killed_run_with_a_key_is_never_sent_twice(airflow: Airflow, sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.control(*fault("send_sms", "stall_body", seconds=60))
    again = ("send-sms", phone("killed"), "--content", "Hello", "--idempotency-key", "monday")
    sending = airflow(*again)
    until(lambda: message_count(sandbox, "killed") == 1)
    sending.kill()
    ended(sending)
    sandbox.control("DELETE", "faults")
    status, _, err = ended(airflow(*again))
    assert (status, "its lease ends at" in err) == (1, True)
    with open_database(f"sqlite:///{tmp_path}/cpaas.db") as database:
        database.write(
            lambda connection: connection.execute(update(campaigns).values(lease_expires_at=None, owner=None))
        )
    status, _, err = ended(airflow(*again))
    assert (status, "Outcome unknown" in err, message_count(sandbox, "killed")) == (3, True, 1)


def test_ctrl_c_during_lookups_shows_those_that_were_paid_for(airflow: Airflow, sandbox: Sandbox) -> None:
    looking = airflow("lookup", phone("first"), phone("second"), "--output", "json")
    sandbox.control(*fault("lookup_phone", "latency", ms=20_000, after=1))
    until(lambda: sandbox.counters()["accepted"].get("lookup_phone", 0) == 1)
    # The sandbox counts it before the command has read the response.
    time.sleep(1)
    looking.send_signal(signal.SIGINT)
    status, out, err = ended(looking)
    assert (status, len(json.loads(out))) == (130, 1)
    assert "1 number of 2 were not looked up." in err


def test_doctor_on_a_machine_where_nothing_is_configured(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))}
    environment |= settings_for(tmp_path / "home")
    command = [COMMAND, "cpaas", "doctor", "--output", "json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    found = {one["check"]: one["status"] for one in json.loads(done.stdout)}
    assert found["versions"] == found["configuration"] == "ok"
    assert found["connection"] == found["Airflow's database"] == "failed"
    assert found["database"] == "warning"
    assert not (tmp_path / "home" / "cpaas").exists()


def test_sandbox_starts_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    log = tmp_path / "sandbox.log"
    environment = {**os.environ, "CPAAS_SANDBOX_API_KEY": "sk_test_started"}
    command = [COMMAND, "cpaas", "sandbox", "--port", "0", "--set", "otp_status_mode=sent"]
    started = Started.start(command, environment, log, Path.cwd())
    try:
        until(lambda: "service at" in log.read_text() or not started.alive)
        found = re.search(r"service at (\S+)", log.read_text())
        assert found, log.read_text()
        health = httpx.get(f"{found[1]}/_control/health", trust_env=False, verify=False)
        assert health.status_code == 200
        os.kill(started.session, signal.SIGINT)
        _, status = os.waitpid(started.session, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        started.stop(5)
