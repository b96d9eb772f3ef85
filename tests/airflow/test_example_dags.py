"""Every example DAG is read as Airflow reads it, and run for real against the sandbox."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from tests.airflow.examples import EXAMPLES, states, wait_for, xcom
from tests.unit.delivery.arriving import kept, report, to

DAG_IDS = {
    "airtime_rewards",
    "contact_list_sync",
    "customer_campaign",
    "email_the_undelivered",
    "mapped_campaign",
    "otp_onboarding",
    "taskflow_hook",
}
PHONE, DIGITS = "0803 123 4567", "2348031234567"


class TestAllExamples:
    def test_each_is_read_without_error_under_the_name_of_its_file(self, examples):
        assert examples.import_errors == {}
        assert set(examples.dags) == DAG_IDS == {file.stem for file in EXAMPLES.glob("*.py")}

    def test_each_is_read_quickly(self, examples):
        slow = {stat.file: stat.duration for stat in examples.dagbag_stats if stat.duration.total_seconds() > 1.0}
        assert slow == {}

    @pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
    def test_each_explains_itself_and_its_params(self, examples, dag_id):
        dag = examples.dags[dag_id]
        assert dag.doc_md
        assert dag.fileloc == str(EXAMPLES / f"{dag_id}.py")
        for name in dag.params:
            assert dag.params.get_param(name).description, name

    def test_no_example_imports_the_client_when_it_is_read(self, airflow_db):
        code = (
            "import runpy, sys, airflow.sdk\n"
            f"for file in {[str(file) for file in EXAMPLES.glob('*.py')]!r}: runpy.run_path(file)\n"
            "print([name for name in ('phonenumbers', 'cpaas_provider.api.client') if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.strip().endswith("[]")


class TestOtpOnboarding:
    def test_welcomes_whose_code_is_verified(self, run_example, sandbox):
        from cpaas_provider.api import CpaasClient

        def person():
            token = wait_for(lambda: sandbox.inbox("otp")["items"])[0]
            with CpaasClient(sandbox.url, sandbox.api_key) as client:
                client.verify_otp(token["id"], token["code"])

        app = threading.Thread(target=person)
        app.start()
        done = run_example("otp_onboarding", phone=PHONE)
        app.join(30)
        assert done.state == "success"
        assert states(done)["revoke_otp"] == "skipped"
        assert [item["recipient"] for item in sandbox.inbox("sms")["items"]] == [DIGITS]

    def test_revokes_a_code_that_cannot_be_verified_any_more(self, run_example, sandbox):
        def person_without_luck():
            token = wait_for(lambda: sandbox.inbox("otp")["items"])[0]
            wrong = "000000" if token["code"] != "000000" else "111111"
            from cpaas_provider.api import CpaasClient, CpaasNotVerifiedError

            with CpaasClient(sandbox.url, sandbox.api_key) as client:
                for _ in range(5):
                    with pytest.raises(CpaasNotVerifiedError):
                        client.verify_otp(token["id"], wrong)

        app = threading.Thread(target=person_without_luck)
        app.start()
        done = run_example("otp_onboarding", phone=PHONE)
        app.join(30)
        assert done.state == "failed"
        assert states(done) == {
            "request_otp": "success",
            "wait_until_verified": "failed",
            "revoke_otp": "success",
            "welcome": "upstream_failed",
        }
        assert sandbox.inbox("sms")["total"] == 0


class TestAirtimeRewards:
    def test_buys_once_for_each_winner(self, run_example, sandbox):
        done = run_example("airtime_rewards", winners=3, amount=75)
        assert done.state == "success"
        bought = sandbox.inbox("airtime")["items"]
        assert len({item["recipient"] for item in bought}) == len(bought) == 3
        assert {item["amount"] for item in bought} == {75}
        assert xcom(done, "report") == {"purchases": 3, "charge": 225}


class TestContactListSync:
    def test_creates_then_changes_and_deletes_who_is_no_longer_listed(self, run_example, sandbox):
        from airflow.models import Variable

        Variable.set("cpaas_contact_rows", {}, serialize_json=True)
        assert run_example("contact_list_sync").state == "success"
        assert sandbox.counters()["contacts"] == {"rows": 3, "created": 3, "updated": 0, "deleted": 0}
        known = Variable.get("cpaas_contact_rows", deserialize_json=True)

        # Somebody who was on the list last time.
        column = "col_7f3a01"
        sandbox.control("POST", "seed", {"rows": [{"id": "row-of-a-leaver", "columns": {column: "Bola"}}]})
        Variable.set("cpaas_contact_rows", {**known, "leaver": "row-of-a-leaver"}, serialize_json=True)
        assert run_example("contact_list_sync").state == "success"
        counts = sandbox.counters()["contacts"]
        assert (counts["rows"], counts["created"], counts["updated"], counts["deleted"]) == (3, 3, 3, 1)
        assert Variable.get("cpaas_contact_rows", deserialize_json=True) == known


class TestMappedCampaign:
    @pytest.fixture
    def people(self, tmp_path):
        file = tmp_path / "people.csv"
        numbers = [f"0803555{n:04}" for n in range(40)]
        # Two of them are there twice, written in two ways.
        file.write_text("phone\n" + "".join(f"{number}\n" for number in [*numbers, "+2348035550000", "2348035550001"]))
        return str(file)

    def test_each_recipient_gets_one_message_from_one_partition(self, run_example, sandbox, people, tmp_path):
        done = run_example("mapped_campaign", recipients=people, folder=f"file://{tmp_path}/out")
        assert done.state == "success"
        summary = xcom(done, "sum_up", "summary")
        assert (summary["partitions"], summary["partitions_failed"]) == (4, 0)
        assert (summary["recipients"], summary["sent"], summary["duplicates"]) == (40, 40, 2)
        reached = [item["recipient"] for item in sandbox.inbox("sms", limit=100)["items"]]
        assert len(reached) == len(set(reached)) == 40
        assert summary["charge"] == sandbox.counters()["charged"]
        assert len(list((tmp_path / "out").glob("*/partition_*.jsonl"))) == 4

    def test_failed_partition_is_in_the_sum(self, run_example, sandbox, people, tmp_path):
        sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "cut_after", "times": 1})
        done = run_example("mapped_campaign", recipients=people, folder=f"file://{tmp_path}/out")
        assert done.state == "failed"
        summary = xcom(done, "sum_up", "summary")
        assert summary["partitions_failed"] == 1
        assert summary["unknown_recipients"] > 0
        assert summary["sent"] + summary["unknown_recipients"] == 40


class TestTaskflowHook:
    def test_sends_to_number_without_dnd(self, run_example, sandbox):
        sandbox.control("POST", "seed", {"lookups": [{"phone": DIGITS, "dnd": False}]})
        done = run_example("taskflow_hook", phone=PHONE)
        assert done.state == "success"
        assert [item["recipient"] for item in sandbox.inbox("sms")["items"]] == [DIGITS]
        assert set(xcom(done, "greet")) == {"id", "charge"}

    def test_skips_number_with_dnd(self, run_example, sandbox):
        sandbox.control("POST", "seed", {"lookups": [{"phone": DIGITS, "dnd": True}]})
        done = run_example("taskflow_hook", phone=PHONE)
        assert states(done) == {"is_not_dnd": "success", "greet": "skipped"}
        assert sandbox.inbox("sms")["total"] == 0


class TestEmailTheUndelivered:
    @pytest.fixture
    def store(self, tmp_path, monkeypatch):
        from cpaas_provider.store.database import open_store

        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path / 'store.db'}")
        with open_store() as opened:
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
        ticket = to(*states, campaign="spring")
        kept(store, *(report(number.removeprefix("n"), state, ticket=ticket) for number, state in states.items()))

    def test_emails_recipients_of_undelivered_sms(self, run_example, sandbox, store, contacts, tmp_path):
        self.report_on(store, **{f"n{DIGITS}": "undelivered", "n2348035550002": "delivered"})
        done = run_example(
            "email_the_undelivered", campaign="spring", contacts=contacts, folder=f"file://{tmp_path}/out"
        )
        assert done.state == "success"
        assert [item["recipient"] for item in sandbox.inbox("email")["items"]] == ["ada@example.com"]
        assert xcom(done, "email")["sent"] == 1

    def test_sends_no_email_if_every_sms_was_delivered(self, run_example, sandbox, store, contacts, tmp_path):
        self.report_on(store, n2348035550002="delivered")
        done = run_example(
            "email_the_undelivered", campaign="spring", contacts=contacts, folder=f"file://{tmp_path}/out"
        )
        assert states(done) == {"has_undelivered_sms": "success", "email": "skipped"}
        assert sandbox.inbox("email")["total"] == 0

    @pytest.mark.parametrize(
        ("operation", "undelivered", "goes_on"),
        [("send_sms", 2, True), ("send_sms", 0, False), ("send_email", 2, False)],
    )
    def test_does_not_start_itself_again(self, examples, operation, undelivered, goes_on):
        gate = examples.dags["email_the_undelivered"].get_task("has_undelivered_sms").python_callable
        event = SimpleNamespace(extra={"operation": operation, "undelivered": undelivered})
        assert gate({"asset": [event]}) is goes_on
