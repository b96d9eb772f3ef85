"""Every example DAG is read as Airflow reads it, and run for real against the sandbox."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from cpaas_sandbox.core.default_data import COLUMNS
from tests.airflow.harness.examples import EXAMPLES
from tests.unit.delivery.report_builders import report, save_reports, token_for
from tests.waiting import until

DAG_IDS = {
    "airtime_rewards",
    "approved_campaign",
    "contact_list_sync",
    "contact_updates",
    "customer_campaign",
    "email_the_undelivered",
    "failure_alerts",
    "fallback_campaign",
    "mapped_campaign",
    "nightly_offer",
    "otp_onboarding",
    "stop_replies",
    "taskflow_hook",
    "unreachable_contacts",
}
PHONE, DIGITS = "0803 123 4567", "2348031234567"

pytestmark = pytest.mark.cpaas(region="NG")


@pytest.fixture
def sandbox(cpaas_sandbox):
    return cpaas_sandbox


class TestAllExamples:
    def test_examples_are_read_without_error_under_the_name_of_their_file(self, examples):
        assert examples.import_errors == {}
        assert set(examples.dags) == DAG_IDS == {file.stem for file in EXAMPLES.glob("*.py")}

    def test_examples_are_read_within_a_second(self, examples):
        slow = {stat.file: stat.duration for stat in examples.dagbag_stats if stat.duration.total_seconds() > 1.0}
        assert slow == {}

    @pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
    def test_example_documents_itself_and_its_params(self, examples, dag_id):
        dag = examples.dags[dag_id]
        assert dag.doc_md
        assert dag.fileloc == str(EXAMPLES / f"{dag_id}.py")
        for name in dag.params:
            assert dag.params.get_param(name).description, name

    def test_reading_the_examples_does_not_import_the_client(self, airflow_db):
        code = (
            "import runpy, sys, airflow.sdk\n"
            f"for file in {[str(file) for file in EXAMPLES.glob('*.py')]!r}: runpy.run_path(file)\n"
            "print([name for name in ('phonenumbers', 'cpaas_provider.api.client') if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.strip().endswith("[]")


class TestOtpOnboarding:
    def test_recipient_with_a_verified_code_is_welcomed(self, run_example, sandbox):
        sandbox.set_outcomes(otp={PHONE: "verified"})
        done = run_example("otp_onboarding", phone=PHONE)
        assert done.state == "success"
        assert done.states["revoke_otp"] == "skipped"
        assert sandbox.sms_to(PHONE).text == "Welcome! Your number is confirmed."

    def test_customer_verifies_the_code_while_the_dag_waits(self, run_example, sandbox):
        def type_code():
            until(lambda: sandbox.otps)
            assert sandbox.otp_to(PHONE).verify()

        app = threading.Thread(target=type_code)
        app.start()
        done = run_example("otp_onboarding", phone=PHONE)
        app.join(30)
        assert done.state == "success"
        assert sandbox.sms_to(PHONE).recipient == DIGITS

    @pytest.mark.parametrize("outcome", ["failed", "expired"])
    def test_revokes_a_code_that_cannot_be_verified_any_more(self, run_example, sandbox, outcome):
        sandbox.set_outcomes(otp={PHONE: outcome})
        done = run_example("otp_onboarding", phone=PHONE)
        assert done.state == "failed"
        assert done.states == {
            "request_otp": "success",
            "wait_until_verified": "failed",
            "revoke_otp": "success",
            "welcome": "upstream_failed",
        }
        assert sandbox.sms == []


@pytest.fixture
def approver(airflow_db):
    """Answer the form of a run from a thread, as a person does at Airflow's page. Return the thread and the form."""
    from airflow.api_fastapi.app import cached_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    api = TestClient(cached_app(apps="core"), base_url="http://testserver/api/v2")
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="admin", role="admin"))
    api.headers["Authorization"] = f"Bearer {token}"

    def answering(choice):
        form = {}

        def open_form():
            found = api.get("/dags/approved_campaign/dagRuns/~/hitlDetails", params={"response_received": False})
            # An answer that comes before the task has ended its process wakes nobody.
            forms = found.json()["hitl_details"]
            return [opened for opened in forms if opened["task_instance"]["state"] != "running"]

        def answer():
            form.update(until(open_form)[0])
            instance = form["task_instance"]
            done = api.patch(
                f"/dags/{instance['dag_id']}/dagRuns/{instance['dag_run_id']}/taskInstances/approve/-1/hitlDetails",
                json={"chosen_options": [choice], "params_input": {}},
            )
            form["answered"] = done.status_code

        thread = threading.Thread(target=answer)
        thread.start()
        return thread, form

    return answering


class TestApprovedCampaign:
    @pytest.fixture
    def small_list(self, tmp_path):
        file = tmp_path / "three.csv"
        file.write_text("phone,name\n+2348035550301,Ada\n+2348035550302,Obi\n+2348035550301,Ada\n+2348035550303,Uma\n")
        return str(file)

    @pytest.mark.parametrize(("choice", "state", "sent"), [("Approve", "success", 3), ("Reject", "skipped", 0)])
    def test_campaign_is_sent_only_if_approved(self, run_example, sandbox, approver, small_list, choice, state, sent):
        thread, form = approver(choice)
        done = run_example("approved_campaign", csv=small_list)
        thread.join(30)
        assert form["answered"] == 200
        assert form["subject"] == "Send 3 SMS?"
        assert "| Recipients | 3 |" in form["body"]
        assert "| Estimated cost | 12.00 |" in form["body"]
        assert "| Duplicates | 1 |" in form["body"]
        assert "Hello Ada, your points are worth double" in form["body"]
        assert "2348035550301" not in form["body"]
        assert done.states == {"check": "success", "approve": "success", "send": state}
        assert len(sandbox.sms) == sent


class TestAirtimeRewards:
    def test_airtime_is_bought_once_per_winner(self, run_example, sandbox):
        done = run_example("airtime_rewards", winners=3, amount=75)
        assert done.state == "success"
        bought = sandbox.airtime
        assert len({purchase.recipient for purchase in bought}) == len(bought) == 3
        assert {purchase.amount for purchase in bought} == {75}
        assert done.xcom("report") == {"purchases": 3, "charge": 225}


CUSTOMERS = """CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, first_name, last_name, phone, email, born, plan,
    points, tags, updated_at)"""


class Warehouse:
    """A SQLite database with customers, which a connection of Airflow names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.do(CUSTOMERS)
        for number in range(1, 41):
            self.add(number)

    def do(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute(statement, values)

    def add(self, number: int, updated_at: str = "2026-03-01 10:00:00") -> None:
        row = (
            *(number, "Ada", f"No {number}", f"0803555{number:04}", f"ada{number}@Example.com", "1990-02-03", "gold"),
            *(number, "a;b", updated_at),
        )
        self.do(f"INSERT INTO customers VALUES ({', '.join('?' * len(row))})", *row)


@pytest.fixture
def warehouse(tmp_path, monkeypatch):
    path = tmp_path / "warehouse.db"
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps({"conn_type": "sqlite", "host": str(path)}))
    return Warehouse(path)


def by_name(sandbox):
    rows = sandbox.contacts
    assert len({row["Name"] for row in rows}) == len(rows)
    return {row["Name"]: row for row in rows}


class TestContactListSync:
    def test_creates_then_sends_changed_cells_and_deletes_rows_gone_from_the_warehouse(
        self, run_example, sandbox, warehouse, tmp_path
    ):
        folder = f"file://{tmp_path}/out"
        assert run_example("contact_list_sync", folder=folder).xcom("summarise")["created"] == 40
        assert sandbox.contact(Name="Ada No 7") == {
            "Name": "Ada No 7",
            "Phone": "2348035550007",
            "Email": "ada7@example.com",
            "Birthday": "1990-02-03",
            "Plan": "gold",
            "Points": 7,
            "Tags": ["a", "b"],
        }
        warehouse.do("UPDATE customers SET points = 99, tags = NULL WHERE customer_id = 7")
        warehouse.do("DELETE FROM customers WHERE customer_id > 38")
        done = run_example("contact_list_sync", folder=folder)
        counts = done.xcom("summarise")
        assert (counts["created"], counts["updated"], counts["deleted"]) == (0, 1, 2)
        assert done.states["alert"] == "skipped"
        row = sandbox.contact(Name="Ada No 7")
        assert (row["Points"], row["Tags"]) == (99, ["a", "b"])
        assert len(sandbox.contacts) == 38
        files = [path.read_text().splitlines() for path in (tmp_path / "out").glob("*/contacts.jsonl")]
        assert sorted(map(len, files)) == [3, 40]

    def test_stops_and_alerts_where_too_many_rows_would_be_deleted(self, run_example, sandbox, warehouse, tmp_path):
        folder = f"file://{tmp_path}/out"
        run_example("contact_list_sync", folder=folder)
        warehouse.do("DELETE FROM customers WHERE customer_id > 20")
        done = run_example("contact_list_sync", folder=folder)
        assert done.state == "failed"
        assert done.states == {"sync": "failed", "alert": "success", "summarise": "upstream_failed"}
        assert "Changes planned: 20." in sandbox.sms_to("+2348035550100").text
        assert len(sandbox.contacts) == 40


class TestContactUpdates:
    def test_reads_rows_from_the_cursor_on_and_shares_the_map_with_the_nightly_sync(
        self, run_example, sandbox, warehouse, tmp_path
    ):
        run_example("contact_list_sync", folder=f"file://{tmp_path}/out")
        first = run_example("contact_updates").xcom("sync")
        assert (first["rows"], first["unchanged"], first["requests"]) == (40, 40, 0)
        warehouse.add(41, "2026-03-02 10:00:00")
        warehouse.do("UPDATE customers SET plan = 'basic', updated_at = '2026-03-02 10:00:00' WHERE customer_id = 3")
        second = run_example("contact_updates").xcom("sync")
        assert (second["created"], second["updated"], second["requests"]) == (1, 1, 2)
        third = run_example("contact_updates").xcom("sync")
        assert (third["rows"], third["requests"]) == (2, 0)
        assert len(by_name(sandbox)) == 41


class TestUnreachableContacts:
    def test_marks_contacts_of_failed_messages_and_creates_none(self, run_example, sandbox, warehouse, tmp_path):
        from cpaas_provider.database.database import open_database

        status = "SMS status"
        sandbox.seed(columns=[*COLUMNS, {"id": "col_status", "name": status, "type": "TEXT"}])
        run_example("contact_list_sync", folder=f"file://{tmp_path}/out")
        # The first is no contact yet.
        warehouse.add(50)
        became = {"2348035550050": "undelivered", "2348035550004": "undelivered", "2348035550005": "delivered"}
        reported = token_for(*became, campaign="spring")
        with open_database() as store:
            save_reports(store, *(report(number, state, token=reported) for number, state in became.items()))
        done = run_example("unreachable_contacts", campaign="spring")
        assert done.state == "success"
        counts = done.xcom("mark")
        assert (counts["updated"], counts["created"], counts["not_in_mode"]) == (1, 0, 1)
        marked = {name: row for name, row in by_name(sandbox).items() if status in row}
        assert {name: row[status] for name, row in marked.items()} == {"Ada No 4": "undelivered"}


class TestFailureAlerts:
    def test_failed_tasks_are_one_sms_with_their_number(self, run_example, sandbox, monkeypatch):
        from cpaas_provider.hooks._receiver import get_receiver_connection
        from cpaas_provider.notifications._runtime.alerts import AlertGroups
        from cpaas_provider.notifications._runtime.background import BackgroundSender

        # The API server sends it, once its background sender has seen that no further alert comes.
        sender = BackgroundSender(get_receiver_connection)
        assert sender.run_once()
        monkeypatch.setattr(AlertGroups, "_has_sender", lambda *_: True)
        done = run_example("failure_alerts", files=6, broken=4)
        assert done.state == "failed"
        assert sandbox.sms == []
        until(lambda: sender.run_once() and sandbox.sms and sandbox.emails)
        sender.stop()
        alert = sandbox.sms_to("+2348035550100").text
        assert alert.partition(" since ")[0] == "Airflow: 4 alerts"
        assert sandbox.email_to("data-team@example.com").subject == "Airflow: DAG failure_alerts failed"
        assert "failure_alerts.load failed (4) http://localhost:8080/dags/failure_alerts/runs/" in alert

    def test_run_without_failures_sends_nothing(self, run_example, sandbox):
        assert run_example("failure_alerts", files=3).state == "success"
        assert sandbox.sms == []


class TestMappedCampaign:
    @pytest.fixture
    def people(self, tmp_path):
        file = tmp_path / "people.csv"
        numbers = [f"0803555{n:04}" for n in range(40)]
        # Two of them are there twice, written in two ways.
        file.write_text("phone\n" + "".join(f"{number}\n" for number in [*numbers, "+2348035550000", "2348035550001"]))
        return str(file)

    def test_recipients_get_one_message_from_one_partition(self, run_example, sandbox, people, tmp_path):
        done = run_example("mapped_campaign", recipients=people, folder=f"file://{tmp_path}/out")
        assert done.state == "success"
        summary = done.xcom("sum_up", "summary")
        assert (summary["partitions"], summary["partitions_failed"]) == (4, 0)
        assert (summary["recipients"], summary["sent"], summary["duplicates"]) == (40, 40, 2)
        reached = [message.recipient for message in sandbox.sms]
        assert len(reached) == len(set(reached)) == 40
        assert summary["charge"] == sandbox.counters()["charged"]
        assert len(list((tmp_path / "out").glob("*/partition_*.jsonl"))) == 4

    def test_failed_partition_is_in_the_sum(self, run_example, sandbox, people, tmp_path):
        sandbox.fault("cut_after", "send_sms", times=1)
        done = run_example("mapped_campaign", recipients=people, folder=f"file://{tmp_path}/out")
        assert done.state == "failed"
        summary = done.xcom("sum_up", "summary")
        assert summary["partitions_failed"] == 1
        assert summary["unknown_recipients"] > 0
        assert summary["sent"] + summary["unknown_recipients"] == 40


class TestNightlyOffer:
    @pytest.fixture
    def nightly(self, run_example, cpaas_receiver, warehouse, tmp_path, monkeypatch):
        """Run it for 40 customers at noon in Lagos, with a receiver for the delivery reports."""
        from cpaas_provider.sending.campaign import batcher

        noon = dt.datetime(2026, 3, 1, 11, tzinfo=dt.UTC)
        clock = type("Clock", (dt.datetime,), {"now": classmethod(lambda _, zone: noon.astimezone(zone))})
        monkeypatch.setattr(batcher, "datetime", clock)
        return lambda: run_example("nightly_offer", folder=f"file://{tmp_path}/out")

    def test_emails_recipients_of_undelivered_sms_once_nine_in_ten_are_delivered(self, nightly, sandbox, warehouse):
        warehouse.do("UPDATE customers SET plan = 'basic' WHERE customer_id > 20")
        sandbox.set_outcomes(sms=dict.fromkeys(["+2348035550007", "+2348035550011"], "undelivered"))
        done = nightly()
        assert done.state == "success", done.states
        assert done.xcom("send")["sent"] == 20
        assert {sms.text.partition(",")[0] for sms in sandbox.sms} == {"Hello Ada"}
        assert done.xcom("delivered")["delivered"] >= 18
        emailed = {email.recipient for email in sandbox.emails}
        assert emailed >= {"ada7@example.com", "ada11@example.com"}
        assert len(emailed) == 20 - done.xcom("delivered")["delivered"]

    def test_second_run_of_the_day_sends_only_to_new_customers(self, nightly, sandbox, warehouse):
        assert nightly().state == "success"
        warehouse.add(41)
        assert nightly().state == "success"
        reached = Counter(sms.recipient for sms in sandbox.sms)
        assert len(reached) == 41
        assert set(reached.values()) == {1}

    def test_emails_nothing_if_less_than_nine_in_ten_are_delivered(self, nightly, sandbox):
        undelivered = [f"+23480355500{number:02}" for number in range(1, 11)]
        sandbox.set_outcomes(sms=dict.fromkeys(undelivered, "undelivered"))
        done = nightly()
        assert done.states == {"send": "success", "delivered": "failed", "email": "upstream_failed"}
        assert sandbox.emails == []


class TestStopReplies:
    def test_customer_who_replies_stop_gets_no_offer(self, run_example, sandbox, tmp_path):
        file = tmp_path / "people.csv"
        file.write_text("phone\n+2348035550000\n+2348035550001\n+2348035550002\n")
        replies = [{"from": "0803 555 0001", "text": " stop "}, {"from": "08035550002", "text": "thanks"}]
        done = run_example("stop_replies", recipients=str(file), replies=replies)
        assert done.state == "success"
        assert done.xcom("opt_out") == 1
        assert (done.xcom("offer")["sent"], done.xcom("offer")["suppressed"]) == (2, 1)
        assert {message.recipient for message in sandbox.sms} == {"2348035550000", "2348035550002"}
        # The next run passes the same reply on once more.
        again = run_example("stop_replies", recipients=str(file), replies=replies)
        assert again.xcom("opt_out") == 0


class TestTaskflowHook:
    def test_sends_to_number_without_dnd(self, run_example, sandbox):
        sandbox.set_lookup(PHONE, dnd=False)
        done = run_example("taskflow_hook", phone=PHONE)
        assert done.state == "success"
        assert sandbox.sms_to(PHONE).text == "Hello from Airflow!"
        assert set(done.xcom("greet")) == {"id", "charge"}

    def test_skips_number_with_dnd(self, run_example, sandbox):
        sandbox.set_lookup(PHONE, dnd=True)
        done = run_example("taskflow_hook", phone=PHONE)
        assert done.states == {"is_not_dnd": "success", "greet": "skipped"}
        assert sandbox.sms == []


class TestEmailUndelivered:
    @pytest.fixture
    def store(self, run_example):
        from cpaas_provider.database.database import open_database

        with open_database() as opened:
            yield opened

    @pytest.fixture
    def contacts(self, tmp_path):
        file = tmp_path / "contacts.csv"
        people = [
            f"{PHONE},ada@example.com",
            "+2348035550002,obi@example.com",
            "0803 555 0003,",
            "2.3E+12,x@example.com",
        ]
        file.write_text("\n".join(["phone,email", *people, ""]))
        return str(file)

    def report_on(self, store, **states):
        token = token_for(*states, campaign="spring")
        save_reports(store, *(report(number.removeprefix("n"), state, token=token) for number, state in states.items()))

    def test_emails_recipients_of_undelivered_sms(self, run_example, sandbox, store, contacts, tmp_path):
        self.report_on(store, **{f"n{DIGITS}": "undelivered", "n2348035550002": "delivered"})
        done = run_example(
            "email_the_undelivered", campaign="spring", contacts=contacts, folder=f"file://{tmp_path}/out"
        )
        assert done.state == "success"
        assert [email.recipient for email in sandbox.emails] == ["ada@example.com"]
        assert done.xcom("email")["sent"] == 1

    def test_sends_no_email_if_every_sms_was_delivered(self, run_example, sandbox, store, contacts, tmp_path):
        self.report_on(store, n2348035550002="delivered")
        done = run_example(
            "email_the_undelivered", campaign="spring", contacts=contacts, folder=f"file://{tmp_path}/out"
        )
        assert done.states == {"has_undelivered_sms": "success", "email": "skipped"}
        assert sandbox.emails == []

    @pytest.mark.parametrize(
        ("operation", "undelivered", "goes_on"),
        [("send_sms", 2, True), ("send_sms", 0, False), ("send_email", 2, False)],
    )
    def test_does_not_start_itself_again(self, examples, operation, undelivered, goes_on):
        gate = examples.dags["email_the_undelivered"].get_task("has_undelivered_sms").python_callable
        event = SimpleNamespace(extra={"operation": operation, "undelivered": undelivered})
        assert gate({"asset": [event]}) is goes_on
