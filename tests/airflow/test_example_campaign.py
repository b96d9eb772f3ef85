"""The campaign example: no row lost, nobody written to twice, figures that agree with the service's own."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter

import pytest

from tests.airflow.examples import EXAMPLES, states, xcom
from tests.sandbox import connection_json

CSV = EXAMPLES / "data" / "customers.csv"
PEOPLE = [(f"0803555010{n}", f"person{n}@example.com") for n in range(6)]
NUMBERS = [f"234{phone[1:]}" for phone, _ in PEOPLE]


@pytest.fixture
def small_list(tmp_path, sandbox):
    """Six people of whom nobody minds being written to."""
    file = tmp_path / "six.csv"
    file.write_text("name,phone,email\n" + "".join(f"Person {p[-1]},{p},{e}\n" for p, e in PEOPLE))
    sandbox.control("POST", "seed", {"lookups": [{"phone": number, "dnd": False} for number in NUMBERS]})
    return str(file)


@pytest.fixture
def campaign(run_example, sandbox, small_list, tmp_path, monkeypatch):
    """Run the campaign for the six, two to a request."""
    connection = connection_json(sandbox.connection, recipients_per_request=2)
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_DEFAULT", connection)
    return lambda **conf: run_example(
        "customer_campaign", **{"csv": small_list, "folder": f"file://{tmp_path}/out", **conf}
    )


def sent_to(sandbox, channel="sms"):
    return Counter(item["recipient"] for item in sandbox.inbox(channel, limit=1000)["items"])


def outcomes(tmp_path, task_id):
    [file] = (tmp_path / "out").glob(f"*/{task_id}_outcomes.jsonl")
    return {entry["to"]: entry["outcome"] for entry in map(json.loads, file.read_text().splitlines())}


class TestTheList:
    def test_is_what_its_program_makes(self, tmp_path):
        again = tmp_path / "customers.csv"
        subprocess.run(
            [sys.executable, str(EXAMPLES / "data" / "make_customers.py"), str(again)], check=True, timeout=60
        )
        assert again.read_bytes() == CSV.read_bytes()

    def test_has_everything_that_goes_wrong_in_such_lists(self):
        text = CSV.read_text(encoding="utf-8")
        assert text.startswith("\ufeff")
        with CSV.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file))
        assert len(rows) > 1000
        phones = [row[2] for row in rows[1:] if len(row) > 2]
        assert "2.348E+12" in phones
        assert any(phone.endswith(".0") for phone in phones)
        assert any(phone.startswith("'") for phone in phones)
        assert [] in rows
        assert any("\n" in cell for row in rows for cell in row)
        assert any("李" in cell for row in rows for cell in row)

    def test_loses_no_row(self, examples):
        from campaign_steps.customers import sort_rows

        with CSV.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file))[1:]
        with CSV.open(encoding="utf-8-sig", newline="") as file:
            found = list(sort_rows(file, "NG", limit=500))
        assert [row["row"] for _, row in found] == list(range(2, len(rows) + 2))
        kinds = Counter(kind for kind, _ in found)
        assert set(kinds) == {"customers", "bad_rows", "duplicates", "beyond_limit"}
        assert kinds["customers"] == 500
        customers = [row["phone"] for kind, row in found if kind == "customers"]
        assert len(set(customers)) == len(customers)

    def test_says_why_a_row_is_bad_without_its_value(self, examples):
        from campaign_steps.customers import sort_rows

        with CSV.open(encoding="utf-8-sig", newline="") as file:
            reasons = [row["reason"] for kind, row in sort_rows(file, "NG") if kind == "bad_rows"]
        assert "phone lost its last digits in a spreadsheet (scientific notation)" in reasons
        assert not any(character.isdigit() for reason in reasons for character in reason)


class TestTheWholeList:
    def test_twice_over_agrees_with_the_service_and_changes_rows_the_second_time(self, run_example, sandbox, tmp_path):
        folder = {"folder": f"file://{tmp_path}/out"}
        first = xcom(run_example("customer_campaign", **folder), "summarise", "summary")
        counters = sandbox.counters()
        assert first["read"] == first["bad"] + first["duplicates"] + first["customers"] > 1000
        assert first["customers"] == first["looked_up"] == counters["lookups"]
        assert first["customers"] - first["dnd_skipped"] == first["reachable"] == first["contacts_created"]
        assert first["contacts_created"] == counters["contacts"]["created"] == counters["contacts"]["rows"]
        assert first["sms_sent"] == counters["sms"]["recipients"] == first["reachable"]
        assert first["email_sent"] == counters["email"]["recipients"] > 500
        assert first["balance"] == counters["balance"]
        assert set(sent_to(sandbox).values()) == {1}

        second = xcom(run_example("customer_campaign", **folder), "summarise", "summary")
        again = sandbox.counters()
        assert second["looked_up"] == 0
        assert again["lookups"] == counters["lookups"]
        assert second["contacts_updated"] == again["contacts"]["updated"] == first["reachable"]
        assert again["contacts"]["rows"] == first["contacts_created"]


class TestTrouble:
    def test_what_may_have_been_sent_is_told_and_not_sent_again(self, campaign, sandbox, tmp_path):
        sandbox.control("POST", "faults", {"operation": "send_sms", "kind": "cut_after", "times": 1})
        run = campaign()
        assert run.state == "failed"
        assert states(run)["send_sms"] == "failed"
        assert states(run)["send_email"] == "success"
        summary = xcom(run, "summarise", "summary")
        assert (summary["sms_sent"], summary["sms_unknown"], summary["sms_not_sent"]) == (4, 2, 0)
        assert sent_to(sandbox) == Counter(NUMBERS)
        told = outcomes(tmp_path, "send_sms")
        assert [number for number in NUMBERS if told[number] == "unknown"] == NUMBERS[:2]

    def test_one_bad_recipient_spoils_nobody_elses_message(self, campaign, sandbox, tmp_path):
        sandbox.control("POST", "seed", {"refused_recipients": [NUMBERS[3]]})
        run = campaign(max_rejected=1)
        assert run.state == "success"
        assert sent_to(sandbox) == Counter(set(NUMBERS) - {NUMBERS[3]})
        assert outcomes(tmp_path, "send_sms")[NUMBERS[3]] == "rejected"

    def test_a_rejection_fails_the_run_unless_it_is_tolerated(self, campaign, sandbox):
        sandbox.control("POST", "seed", {"refused_recipients": [NUMBERS[3]]})
        run = campaign()
        assert run.state == "failed"
        assert xcom(run, "summarise", "summary")["sms_rejected"] == 1

    def test_an_empty_account_stops_the_sending_and_says_who_was_not_reached(self, campaign, sandbox):
        sandbox.control("PUT", "prices", {"email": 0, "lookup": 0, "sms": 4})
        sandbox.control("PUT", "balance", {"balance": 10})
        run = campaign()
        assert run.state == "failed"
        summary = xcom(run, "summarise", "summary")
        assert (summary["sms_sent"], summary["sms_not_sent"], summary["balance"]) == (2, 4, 2)
        assert summary["email_sent"] == 6

    def test_a_missing_column_is_named(self, campaign, sandbox):
        run = campaign(columns={"Shoe size": "shoe"})
        assert run.state == "failed"
        assert states(run)["upsert_contacts"] == "failed"
        assert sandbox.counters()["sms"]["recipients"] == 0

    def test_a_staging_connection_reaches_only_its_own_people(self, campaign, sandbox, monkeypatch):
        connection = connection_json(sandbox.connection, allowed_recipients=[f"+{NUMBERS[1]}", PEOPLE[2][1]])
        monkeypatch.setenv("AIRFLOW_CONN_CPAAS_DEFAULT", connection)
        run = campaign()
        assert run.state == "success"
        summary = xcom(run, "summarise", "summary")
        assert (summary["sms_sent"], summary["sms_not_allowed"]) == (1, 5)
        assert list(sent_to(sandbox)) == [NUMBERS[1]]
        assert list(sent_to(sandbox, "email")) == [PEOPLE[2][1]]


class Kept(dict):
    """A state store as a task's: values survive as JSON does."""

    def get(self, key, default=None):
        return json.loads(self[key]) if key in self else default

    def set(self, key, value, retention=None):
        self[key] = json.dumps(value)


class TestTheJournal:
    @pytest.fixture(autouse=True)
    def _importable(self, examples):
        """The folder of the DAGs is on the path, as in a task."""

    def message(self):
        from cpaas_provider.api.models.sms import SmsMessage

        meta = {"estimate": {"charge": 4, "available_balance": 96}}
        return SmsMessage.model_validate({"id": "m1", "created_datetime": "2026-01-01T00:00:00+00:00", "meta": meta})

    def test_a_try_that_was_killed_in_a_request_leaves_one_pack_in_doubt(self):
        from campaign_steps.packs import Journal, figures, send_in_packs

        store, sent = Kept(), []

        def killed_at_the_second(pack):
            sent.extend(pack)
            if pack.start == 2:
                raise KeyboardInterrupt
            return self.message()

        with pytest.raises(KeyboardInterrupt):
            send_in_packs(Journal(store, NUMBERS, 2), killed_at_the_second)

        def works(pack):
            sent.extend(pack)
            return self.message()

        later = Journal(store, NUMBERS, 2)
        send_in_packs(later, works)
        assert sent == [0, 1, 2, 3, 4, 5]
        assert figures(later)["sent"] == 4
        assert figures(later)["unknown"] == 2

    def test_sends_nothing_where_it_cannot_be_written_down(self):
        from campaign_steps.packs import Journal, send_in_packs

        class Full(Kept):
            def set(self, key, value, retention=None):
                raise OSError("no room")

        with pytest.raises(OSError, match="no room"):
            send_in_packs(Journal(Full(), NUMBERS, 2), lambda pack: pytest.fail("sent"))

    def test_refuses_another_list_than_it_began_with(self):
        from campaign_steps.packs import Journal, RecipientsChangedError, send_in_packs

        store = Kept()
        send_in_packs(Journal(store, NUMBERS, 2), lambda pack: self.message())
        with pytest.raises(RecipientsChangedError):
            Journal(store, NUMBERS[1:], 2)

    def test_keeps_no_number(self):
        from campaign_steps.packs import Journal, send_in_packs

        store = Kept()
        send_in_packs(Journal(store, NUMBERS, 2), lambda pack: self.message())
        assert not any(number in json.dumps(store) for number in NUMBERS)
