"""Tests of a user. ``test_dags`` copies this file under another name, runs it, and looks at what came of each test."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from dags.welcome import NUMBER, mapped_dag, retried_dag, told_dag, tracked_dag, waiting_dag, welcome, welcome_dag

from cpaas_sandbox.pytest_plugin import DagFailedError, DagTimeoutError, SandboxError

SECOND = "0803 000 0002"
SMALL = Path(__file__).parent / "dags" / "small.py"


@pytest.fixture(autouse=True)
def worker(record_property, worker_id, request):
    record_property("worker", worker_id)
    if "sandbox" in request.fixturenames:
        record_property("url", request.getfixturevalue("sandbox").url)
    if "run_dag" in request.fixturenames:
        request.getfixturevalue("run_dag")
        record_property("home", os.environ["AIRFLOW_HOME"])


class TestStates:
    def test_verified(self, sandbox, run_dag):
        sandbox.set_outcomes(otp={NUMBER: "verified"})
        run = run_dag(welcome_dag)
        assert sandbox.sms_to(NUMBER).text == "Welcome!"
        assert run.state == "success"
        assert run.states == {"request": "success", "wait": "success", "greet": "success", "apologise": "skipped"}
        assert run.xcom("request")["id"] == sandbox.otp_to(NUMBER).id
        assert run.xcom("greet", "missing") is None
        assert run.errors == []

    def test_unchecked(self, sandbox, run_dag):
        sandbox.set_outcomes(otp={NUMBER: "expired"})
        run = run_dag(welcome_dag, check=False)
        assert (run.state, run.states["wait"], run.states["greet"]) == ("failed", "failed", "upstream_failed")
        assert "expired" in str(run.error("wait"))
        assert sandbox.sms_to(NUMBER).text == "Too late."
        with pytest.raises(LookupError, match="No try of 'request' failed"):
            run.error("request")

    def test_failed(self, sandbox, run_dag):
        sandbox.set_outcomes(otp={NUMBER: "expired"})
        run_dag(welcome_dag)

    def test_cause(self, sandbox, run_dag):
        sandbox.reject(NUMBER)
        with pytest.raises(DagFailedError, match="Task 'request' failed at try 1: ") as caught:
            run_dag(welcome_dag)
        assert type(caught.value.__cause__).__name__ == "AirflowFailException"

    def test_retries_at_once(self, sandbox, run_dag):
        run = run_dag(retried_dag)
        assert [(failed.task, failed.try_number, str(failed.error)) for failed in run.errors] == [
            ("flaky", 1, "try 1"),
            ("flaky", 2, "try 2"),
        ]
        assert run.xcom("flaky") == 3
        assert sandbox.sms_to(NUMBER).text == "Hello"

    def test_mapped(self, run_dag):
        run = run_dag(mapped_dag, check=False)
        assert run.states == {"double[0]": "success", "double[1]": "failed", "double[2]": "success"}
        assert run.xcom("double", map_index=2) == 6
        assert str(run.error("double[1]")) == "no twos"

    def test_late(self, run_dag):
        handlers = [signal.getsignal(name) for name in (signal.SIGALRM, signal.SIGTERM)]
        with pytest.raises(DagTimeoutError, match=r"did not end within 3 s\. The states are: never running\."):
            run_dag(waiting_dag, timeout=3)
        assert [signal.getsignal(name) for name in (signal.SIGALRM, signal.SIGTERM)] == handlers

    def test_late_trigger(self, sandbox, run_dag):
        with pytest.raises(DagTimeoutError, match=r"request success, wait running, .*sandbox\.set_outcomes"):
            run_dag(welcome_dag, timeout=15)


class TestIsolation:
    @pytest.mark.parametrize("again", [False, True])
    def test_nothing_stays(self, sandbox, run_dag, again):
        from airflow.models.dagrun import DagRun
        from airflow.models.variable import Variable
        from airflow.utils.session import create_session

        with create_session() as session:
            assert session.query(DagRun).count() == 0
        assert Variable.get("left_behind", None) is None
        Variable.set("left_behind", "yes")
        sandbox.set_outcomes(otp={NUMBER: "verified"})
        run_dag(welcome_dag, {"text": "Changed"})
        run_dag(welcome_dag)
        assert [message.text for message in sandbox.sms] == ["Changed", "Welcome!"]

    def test_home_is_not_the_user_s(self, run_dag):
        assert Path(os.environ["AIRFLOW_HOME"]).is_relative_to(os.environ["EXPECTED_UNDER"])


class TestInputs:
    @pytest.mark.cpaas(conn_id="shop")
    def test_file(self, sandbox, run_dag):
        run_dag(SMALL, {"text": "Changed"})
        run_dag(str(SMALL), dag_id="small")
        assert [message.text for message in sandbox.sms] == ["Changed", "Hello"]

    def test_mistakes(self, run_dag, tmp_path):
        with pytest.raises(SandboxError, match=r"not function. Call the function that @dag decorates"):
            run_dag(welcome)
        with pytest.raises(SandboxError, match="There is no DAG file "):
            run_dag("dags/missing.py")
        with pytest.raises(SandboxError, match=r"has 6 DAGs. Give dag_id, one of: mapped, retried, "):
            run_dag(SMALL.with_name("welcome.py"))
        with pytest.raises(SandboxError, match="has no DAG 'other', only: small"):
            run_dag(SMALL, dag_id="other")
        broken = tmp_path / "broken.py"
        broken.write_text("from airflow.sdk import DAG\nimport not_there\n")
        with pytest.raises(SandboxError, match=r"Airflow cannot read (.|\n)*No module named 'not_there'"):
            run_dag(broken)


class TestFaults:
    def test_unknown_outcome(self, sandbox, run_dag):
        sandbox.set_outcomes(otp={NUMBER: "verified"})
        sandbox.fault("cut_after", "send_sms", times=1)
        with pytest.raises(DagFailedError, match=r"Task 'greet' failed at try 1: (.|\n)*unknown"):
            run_dag(welcome_dag)
        assert sandbox.sms_to(NUMBER).text == "Welcome!"

    def test_rate_limit(self, sandbox, run_dag):
        sandbox.set_outcomes(otp={NUMBER: "verified"})
        sandbox.fault("rate_limit", "send_sms", times=1, retry_after=0)
        run_dag(welcome_dag)
        assert sandbox.counters()["requests"]["send_sms"] == 2
        assert sandbox.sms_to(NUMBER).text == "Welcome!"


class TestDelivery:
    def test_outcomes(self, sandbox, run_dag, cpaas_receiver):
        sandbox.set_outcomes(sms={SECOND: "undelivered"})
        run = run_dag(tracked_dag, check=False)
        assert run.states == {"send": "success", "delivered": "failed"}
        assert sandbox.sms_to(NUMBER).status == "delivered"

    def test_reports_of_the_test(self, sandbox, run_dag, cpaas_receiver):
        sandbox.hold_reports()
        run_dag(told_dag)
        sandbox.sms_to(NUMBER).click()
        sandbox.sms_to(SECOND).fail("Unknown subscriber")
        assert sandbox.sms_to(SECOND).status == "undelivered"
        sandbox.clock.advance(days=1)
        sandbox.wait_for_reports()
        reports = sandbox.control("GET", "inbox/reports")["items"]
        sent = {report["status"] for report in reports if report["state"] == "acknowledged"}
        assert sent == {"clicked", "delivered", "undelivered"}
        assert {report["status"] for report in reports if report["recipient"] == "2348030000002"} == {"undelivered"}


@pytest.fixture(scope="module")
def greeted(cpaas_session_sandbox, cpaas_session_run_dag):
    cpaas_session_sandbox.set_outcomes(otp={NUMBER: "verified"})
    return cpaas_session_run_dag(welcome_dag)


@pytest.mark.xdist_group("session")
class TestSession:
    def test_one(self, greeted, cpaas_session_sandbox):
        assert cpaas_session_sandbox.sms_to(NUMBER).text == "Welcome!"

    def test_between(self, sandbox, run_dag):
        assert sandbox.sms == []
        sandbox.set_outcomes(otp={NUMBER: "verified"})
        run_dag(welcome_dag)

    def test_two(self, greeted, cpaas_session_sandbox):
        assert cpaas_session_sandbox.sms_to(NUMBER).text == "Welcome!"
        assert greeted.xcom("request")["id"] == cpaas_session_sandbox.otp_to(NUMBER).id
