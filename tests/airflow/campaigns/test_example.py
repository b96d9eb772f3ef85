"""The campaign example: no row lost, no recipient sent to twice, figures that agree with those of the service."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.airflow.harness.examples import EXAMPLES
from tests.reading import results_in

CSV = EXAMPLES / "data" / "customers.csv"
PEOPLE = [(f"0803555010{n}", f"person{n}@example.com") for n in range(1, 7)]
NUMBERS = [f"234{phone[1:]}" for phone, _ in PEOPLE]
COLLEAGUE, COLLEAGUE_S_ADDRESS = "2348035550100", "ada.colleague@example.com"


pytestmark = pytest.mark.cpaas(region="NG")


@pytest.fixture
def sandbox(cpaas_sandbox):
    return cpaas_sandbox


def listing(*customers: tuple[str, ...]) -> str:
    """Return a CSV with all columns that the example reads: each with name, phone, email and perhaps a country."""
    head = "customer_id,name,phone,email,country,birthday,plan,points,tags\n"
    rows = [f"C{number},{','.join((*one, '')[:4])},1990-02-03,plus,7,new;vip\n" for number, one in enumerate(customers)]
    return head + "".join(rows)


@pytest.fixture
def small_list(tmp_path, sandbox):
    """Six recipients without do-not-disturb."""
    file = tmp_path / "six.csv"
    file.write_text(listing(*((f"Person {phone[-1]}", phone, email) for phone, email in PEOPLE)))
    phones = [COLLEAGUE, *NUMBERS]
    sandbox.seed(lookups=[{"phone": number, "dnd": False} for number in phones])
    return str(file)


@pytest.fixture
def campaign(run_example, sandbox, small_list, tmp_path):
    """Run the campaign for the six, two to a request."""
    sandbox.connect(recipients_per_request=2, max_concurrency=16)
    return lambda **conf: run_example(
        "customer_campaign", **{"csv": small_list, "folder": f"file://{tmp_path}/out", **conf}
    )


def sent_to(sandbox, channel="sms"):
    return Counter(message.recipient for message in (sandbox.sms if channel == "sms" else sandbox.emails))


def outcomes(tmp_path: Path, task_id: str) -> list[dict]:
    [file] = (tmp_path / "out").glob(f"*/{task_id}.jsonl")
    return results_in(file)


def by_recipient(tmp_path, task_id):
    return {line["recipient"]: line["outcome"] for line in outcomes(tmp_path, task_id)}


def rows_of_the_list() -> list[list[str]]:
    with CSV.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


class TestCustomerList:
    def test_list_is_reproduced_by_its_program(self, tmp_path):
        again = tmp_path / "customers.csv"
        subprocess.run(
            [sys.executable, str(EXAMPLES / "data" / "make_customers.py"), str(again)], check=True, timeout=60
        )
        assert again.read_bytes() == CSV.read_bytes()
        few = CSV.with_name("few_customers.csv").read_bytes()
        assert again.with_name("few_customers.csv").read_bytes() == few
        assert again.read_bytes().startswith(few)

    def test_list_has_every_kind_of_fault_of_such_lists(self):
        text = CSV.read_text(encoding="utf-8")
        assert text.startswith("\ufeff")
        rows = rows_of_the_list()
        assert len(rows) > 1000
        phones = [row[2] for row in rows[1:] if len(row) > 2]
        assert "2.348E+12" in phones
        assert any(phone.endswith(".0") for phone in phones)
        assert any(phone.startswith("'") for phone in phones)
        assert [] in rows
        assert any("\n" in cell for row in rows for cell in row)
        assert any("李" in cell for row in rows for cell in row)


def check_results(tmp_path: Path) -> None:
    """Check that the results of the whole list have every row, with a reason that does not repeat its value."""
    for task_id, rows in (("check", 1100), ("send_sms", 1100), ("send_email", 900)):
        lines = [line for line in outcomes(tmp_path, task_id) if line["row"]]
        assert len({line["row"] for line in lines}) == len(lines) > rows
        reasons = {line["reason"] for line in lines if line["outcome"] == "invalid_row"}
        assert reasons
        assert not any("@" in reason for reason in reasons)
        lost_digits = "phone lost its last digits in a spreadsheet (scientific notation)"
        assert task_id != "check" or lost_digits in reasons


class TestWholeList:
    def test_two_runs_agree_with_the_service_and_the_second_changes_no_row(self, run_example, sandbox, tmp_path):
        folder = {"folder": f"file://{tmp_path}/out"}
        sandbox.set_lookup(COLLEAGUE, dnd=False)
        balance_before = sandbox.counters()["balance"]
        done = run_example("customer_campaign", **folder)
        assert done.state == "success"
        first = done.xcom("summarise", "summary")
        counters = sandbox.counters()
        check, contacts, sms, email = (first[step] for step in ("check", "contacts", "sms", "email"))

        # Every row of the file that is not empty, and so no row at all, is a recipient, an invalid row or a duplicate.
        # Of a record of two lines with too many cells, each line is an invalid row.
        rows = sum(1 for row in rows_of_the_list()[1:] if any(cell.strip() for cell in row)) + 1
        assert check["recipients"] + check["invalid_rows"] + check["duplicates"] == rows > 1000
        assert check["not_sent"] == check["recipients"]
        assert sum(check["pages"].values()) == check["recipients"]
        assert check["estimated_charge"] > 0

        assert contacts["created"] == counters["contacts"]["created"] == contacts["requests"] > 1000
        assert contacts["rows"] == contacts["created"] + contacts["invalid_rows"] == rows
        assert contacts["duplicates"] > 0
        assert sms["recipients"] + sms["dnd"] == counters["lookups"] == check["recipients"] + 1
        assert sms["sent"] == sms["recipients"] == counters["sms"]["recipients"]
        assert email["sent"] == email["recipients"] == counters["email"]["recipients"] > 500
        # Of requests in flight together, the one that is answered last need not be the one that is charged last.
        assert counters["balance"] <= first["balance"] < balance_before
        assert set(sent_to(sandbox).values()) == {1}
        check_results(tmp_path)

        second = run_example("customer_campaign", **folder).xcom("summarise", "summary")
        again = sandbox.counters()
        assert again["lookups"] == counters["lookups"]
        assert second["contacts"]["unchanged"] == contacts["created"]
        assert second["contacts"]["requests"] == 0
        assert again["contacts"]["rows"] == contacts["created"]

    def test_national_number_is_read_with_the_country_of_its_row(self, run_example, sandbox, tmp_path):
        american = tmp_path / "american.csv"
        people = ("Ada", "(202) 555-0145", "", "US"), ("Obi", "0803 555 0101", ""), ("Eve", "0803 555 0102", "", "XX")
        american.write_text(listing(*people))
        run_example("customer_campaign", csv=str(american), folder=f"file://{tmp_path}/out")
        found = [(line["outcome"], line["recipient"]) for line in outcomes(tmp_path, "check")]
        assert found == [("not_sent", "12025550145"), ("not_sent", "2348035550101"), ("invalid_row", None)]


class TestFailures:
    def test_unknown_request_fails_the_run_and_is_not_resent(self, campaign, sandbox, tmp_path):
        sandbox.fault("cut_after", "send_sms", times=1, after=1)
        run = campaign()
        assert run.state == "failed"
        assert run.states["send_sms"] == "failed"
        assert run.states["send_email"] == "success"
        sms = run.xcom("summarise", "summary")["sms"]
        # The first requests have one recipient each, until charge and balance agree.
        assert (sms["sent"], sms["unknown_recipients"], sms["not_sent"]) == (6, 1, 0)
        assert sent_to(sandbox) == Counter([COLLEAGUE, *NUMBERS])
        told = by_recipient(tmp_path, "send_sms")
        assert [number for number in NUMBERS if told[number] == "unknown"] == NUMBERS[:1]

    def test_rejected_test_recipient_stops_the_sms_campaign(self, campaign, sandbox):
        sandbox.reject(COLLEAGUE)
        run = campaign()
        assert run.state == "failed"
        assert sent_to(sandbox) == {}
        assert sent_to(sandbox, "email") == Counter([COLLEAGUE_S_ADDRESS, *(address for _, address in PEOPLE)])

    def test_few_rejections_are_tolerated_and_others_get_their_message(self, campaign, sandbox, tmp_path):
        many = tmp_path / "many.csv"
        numbers = [f"2348035550{n}" for n in range(200, 230)]
        many.write_text(listing(*(("Person", f"+{number}", "") for number in numbers)))
        seeds = {"lookups": [{"phone": number, "dnd": False} for number in numbers], "refused_recipients": [numbers[3]]}
        sandbox.seed(**seeds)
        run = campaign(csv=str(many))
        assert run.states["send_sms"] == "success"
        assert sent_to(sandbox) == Counter([COLLEAGUE, *numbers]) - Counter([numbers[3]])
        assert by_recipient(tmp_path, "send_sms")[numbers[3]] == "rejected"

    def test_many_rejections_fail_the_run(self, campaign, sandbox):
        sandbox.reject(NUMBERS[3])
        run = campaign()
        assert run.state == "failed"
        assert run.xcom("summarise", "summary")["sms"]["rejected"] == 1

    def test_empty_account_stops_the_campaign_and_names_recipients_not_sent_to(self, campaign, sandbox):
        sandbox.control("PUT", "prices", {"email": 0, "lookup": 0, "sms": 4})
        sandbox.set_balance(14)
        run = campaign()
        assert run.state == "failed"
        summary = run.xcom("summarise", "summary")
        assert (summary["sms"]["sent"], summary["sms"]["not_sent"]) == (3, 4)
        assert summary["balance"] == 2
        assert summary["email"]["sent"] == 7

    def test_missing_column_stops_the_run_before_any_message(self, campaign, sandbox, tmp_path):
        file = tmp_path / "without.csv"
        file.write_text(listing(("Ada", *PEOPLE[0])).replace("birthday", "born"))
        run = campaign(csv=str(file))
        assert run.state == "failed"
        assert run.states["sync_contacts"] == "failed"
        assert sandbox.counters()["sms"]["recipients"] == 0

    def test_staging_connection_sends_only_to_allowed_recipients(self, campaign, sandbox):
        colleague = [f"+{COLLEAGUE}", COLLEAGUE_S_ADDRESS]
        allowed = [*colleague, f"+{NUMBERS[1]}", PEOPLE[2][1]]
        sandbox.connect(allowed_recipients=allowed)
        run = campaign()
        assert run.state == "success"
        sms = run.xcom("summarise", "summary")["sms"]
        assert (sms["sent"], sms["not_allowed"]) == (2, 5)
        assert sent_to(sandbox) == Counter([COLLEAGUE, NUMBERS[1]])
        assert sent_to(sandbox, "email") == Counter([COLLEAGUE_S_ADDRESS, PEOPLE[2][1]])


class TestDelivery:
    @pytest.fixture
    def reported(self, cpaas_receiver, small_list, tmp_path):
        return {"csv": small_list, "folder": f"file://{tmp_path}/out"}

    def test_delivery_is_waited_for_and_reported_per_recipient(self, run_example, sandbox, reported, tmp_path):
        undelivered, bounced = NUMBERS[2], PEOPLE[4][1]
        sandbox.set_outcomes(sms={undelivered: "undelivered"}, email={bounced: "bounced"})
        sandbox.set(report_in_flight=True, report_disorder=1, report_duplicate_rate=1)
        run = run_example("customer_campaign", **reported)
        assert run.state == "success"
        summary = run.xcom("summarise", "summary")
        for step, reached, not_sent in (("sms_delivered", 6, undelivered), ("email_delivered", 6, bounced)):
            told = summary[step]
            assert (told["expected"], told["delivered"], told["undelivered"], told["conflicts"]) == (7, reached, 1, 0)
            said = by_recipient(tmp_path, step)
            assert [who for who, outcome in said.items() if outcome != "delivered"] == [not_sent]

    def test_delivery_to_too_few_recipients_fails_the_run(self, run_example, sandbox, reported):
        sandbox.set_outcomes(sms=dict.fromkeys(NUMBERS[:3], "undelivered"))
        run = run_example("customer_campaign", **reported)
        assert run.state == "failed"
        assert run.states["sms_delivered"] == "success"
        assert run.xcom("summarise", "summary")["sms_delivered"]["undelivered"] == 3

    def test_delivery_is_not_waited_for_without_callback_url_and_the_log_says_so(self, campaign, sandbox, caplog):
        run = campaign()
        assert run.state == "success"
        told = run.states
        assert {told["sms_delivered"], told["email_delivered"]} == {"skipped"}
        assert "has no callback_url" in caplog.text
