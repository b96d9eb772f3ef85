"""BulkPhoneLookupOperator as real task instances: each number is paid for once, and the file is a campaign's source."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from cpaas_provider.api.client import AsyncCpaasClient
from cpaas_provider.database.database import open_database
from cpaas_provider.database.schema.lookups import phone_records
from cpaas_provider.operators.lookup import BulkPhoneLookupOperator
from cpaas_provider.operators.sms import SmsCampaignOperator
from cpaas_provider.sending.campaign.guards import lookups
from cpaas_provider.sources import CsvSource, PhoneLookupSource
from tests.airflow.harness.fixed_response import fixed_response_server
from tests.airflow.harness.task_runner import TaskRunner, balance, fault
from tests.airflow.harness.tries import Run, Try, new_dag
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url
from tests.unit.docs.results import documented_keys

pytestmark = pytest.mark.usefixtures("own_database")

NUMBERS = [f"234803570{number:04d}" for number in range(6)]
LAGOS, ACCRA, QUIET = NUMBERS[0], NUMBERS[1], NUMBERS[2]


@pytest.fixture
def numbers(task_runner: TaskRunner, tmp_path: Path) -> str:
    """Return a CSV of six numbers, one of them twice; the service knows all of them."""
    known = [{"phone": one, "operator": "MTN", "country": "NG", "ported": False, "dnd": False} for one in NUMBERS]
    known[1] |= {"operator": "Vodafone", "country": "GH"}
    known[2] |= {"dnd": True}
    task_runner.sandbox.control("POST", "seed", {"lookups": known})
    rows = [f"+{one},Name {number}" for number, one in enumerate([*NUMBERS, LAGOS])]
    return written(tmp_path / "numbers.csv", rows)


def written(file: Path, rows: list[str]) -> str:
    file.write_text("\n".join(["phone,name", *rows, ""]))
    return str(file)


def look_up(task_runner: TaskRunner, source: Any, results: Path, **given: Any) -> Run:
    with new_dag() as dag:
        BulkPhoneLookupOperator(task_id="look_up", source=source, results_path=str(results), **given)
    return Run(task_runner, dag)


def lines(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()]


def requests(task_runner: TaskRunner) -> int:
    return int(task_runner.sandbox.counters()["requests"].get("lookup_phone", 0))


def test_lines_of_delimiters_are_no_rows(task_runner: TaskRunner, numbers: str, tmp_path: Path) -> None:
    source = tmp_path / "export.csv"
    source.write_text("Phone,Name,\n" + f"+{LAGOS},Ada,\n" + ",,\n" * 16)
    done = look_up(task_runner, str(source), tmp_path / "out.jsonl", include_columns=["name"]).run_try()
    assert (done.state, done.result["rows"], done.result["invalid_rows"]) == ("success", 1, 0)
    assert [line["name"] for line in lines(tmp_path / "out.jsonl")] == ["Ada"]


def test_file_has_all_rows_and_each_number_is_paid_for_once(
    task_runner: TaskRunner, numbers: str, tmp_path: Path
) -> None:
    results = tmp_path / "new" / "out.jsonl"
    done = look_up(task_runner, numbers, results, include_columns=["name"], max_lookups=1000).run_try()
    assert done.state == "success", done.error
    assert f"max_lookups 1,000, results_path {results}" in done.log
    assert f"Creating the folder of the results file: {results.parent}." in done.log
    assert done.result == {
        "rows": 7,
        "found": 7,
        "lookups": 6,
        "cached": 0,
        "dnd": 1,
        "lookup_failed": 0,
        "invalid_rows": 0,
        "countries": {"NG": 6, "GH": 1},
        "results_path": str(results),
    }
    assert set(done.result) == documented_keys(BulkPhoneLookupOperator)
    assert requests(task_runner) == 6
    assert lines(results)[1] == {
        "row": 3,
        "phone": f"+{ACCRA}",
        "outcome": "found",
        "operator": "Vodafone",
        "country": "GH",
        "ported": False,
        "dnd": False,
        "reason": None,
        "name": "Name 1",
    }
    again = look_up(task_runner, numbers, results).run_try()
    assert (again.result["lookups"], again.result["cached"], requests(task_runner)) == (0, 6, 6)
    assert not any(number in done.log for number in NUMBERS)


def test_old_lookups_are_made_again(task_runner: TaskRunner, numbers: str, tmp_path: Path) -> None:
    for _ in range(2):
        assert look_up(task_runner, numbers, tmp_path / "out.jsonl", lookup_ttl=0).run_try().result["lookups"] == 6


def test_file_is_the_source_of_a_campaign(task_runner: TaskRunner, numbers: str, tmp_path: Path) -> None:
    results = tmp_path / "out.parquet"
    assert look_up(task_runner, CsvSource(numbers), results, include_columns=["name"]).run_try().state == "success"
    with new_dag() as dag:
        SmsCampaignOperator(
            task_id="send",
            source=PhoneLookupSource(str(results), countries=["NG"], operators=["MTN"]),
            content="Hello {name}",
        )
    sent = Run(task_runner, dag).run_try()
    # The duplicate is one recipient; two of the six are elsewhere or do-not-disturb.
    assert (sent.state, sent.result["sent"], sent.result["duplicates"]) == ("success", 4, 1), sent.error
    recipients = {one["recipient"] for one in task_runner.sandbox.inbox("sms")["items"]}
    assert recipients == set(NUMBERS) - {ACCRA, QUIET}


def test_campaign_uses_the_same_lookups(task_runner: TaskRunner, numbers: str, tmp_path: Path) -> None:
    look_up(task_runner, numbers, tmp_path / "out.jsonl").run_try()
    with new_dag() as dag:
        SmsCampaignOperator(task_id="send", source=numbers, content="Hello", skip_dnd=True)
    sent = Run(task_runner, dag).run_try()
    assert (sent.result["sent"], sent.result["dnd"], requests(task_runner)) == (5, 1, 6)


def test_record_of_another_number_is_not_stored(task_runner: TaskRunner, numbers: str, tmp_path: Path) -> None:
    task_runner.sandbox.control(*fault("lookup_phone", "other_record", times=2))
    first = look_up(task_runner, numbers, tmp_path / "out.jsonl").run_try()
    # One of the numbers is in two rows.
    assert (first.result or first.report)["lookup_failed"] in (2, 3)
    second = look_up(task_runner, numbers, tmp_path / "out.jsonl").run_try()
    assert (second.result["lookups"], second.result["cached"]) == (2, 4)


def test_retry_looks_up_only_remaining_numbers(task_runner: TaskRunner, tmp_path: Path) -> None:
    many = [f"+23480358{number:05d}" for number in range(450)]
    source = written(tmp_path / "many.csv", [f"{one},x" for one in many])
    task_runner.sandbox.control(*fault("lookup_phone", "unavailable", after=230, retry_after=0))
    run = look_up(task_runner, source, tmp_path / "out.jsonl")
    first = run.run_try()
    assert (first.state, first.report["lookups"]) == ("up_for_retry", 230)
    assert not (tmp_path / "out.jsonl").exists()
    task_runner.sandbox.control("DELETE", "faults")
    second = run.run_try()
    assert (second.state, second.result["found"]) == ("success", 450), second.error
    assert (second.result["lookups"], second.result["cached"]) == (220, 230)


@pytest.mark.parametrize(("max_failure_ratio", "state"), [(0.0, "failed"), (0.7, "success")])
def test_invalid_rows_are_in_the_file_and_counted(
    task_runner: TaskRunner, tmp_path: Path, max_failure_ratio: float, state: str
) -> None:
    source = written(tmp_path / "bad.csv", [f"+{LAGOS},x", "nonsense,x", ",x"])
    done = look_up(task_runner, source, tmp_path / "out.jsonl", max_failure_ratio=max_failure_ratio).run_try()
    assert done.state == state
    report = done.result if state == "success" else done.report
    assert (report["found"], report["invalid_rows"]) == (1, 2)
    assert [line["outcome"] for line in lines(tmp_path / "out.jsonl")] == ["found", "invalid_row", "invalid_row"]


def test_error_of_one_bad_number_says_what_a_retry_can_and_cannot_do(task_runner: TaskRunner, tmp_path: Path) -> None:
    task_runner.sandbox.control(*fault("lookup_phone", "broken_json", times=1))
    source = written(tmp_path / "bad.csv", [f"+{LAGOS},x", "nonsense,x", f"+{ACCRA},x"])
    run = look_up(task_runner, source, tmp_path / "out.jsonl")
    first = run.run_try()
    assert first.state == "up_for_retry"
    assert "The lookups of 1 row are stored for lookup_ttl, and not charged again." in first.error
    assert "A retry makes only the lookups that failed." in first.error
    assert "A retry cannot use invalid rows. Correct them in the source" in first.error
    last = run.run_try()
    # The invalid row alone is left, so no further retry is made.
    assert (last.state, last.report["lookups"], last.report["cached"]) == ("failed", 1, 1)
    assert "A retry makes" not in last.error
    assert "The lookups of 2 rows are stored" in last.error
    written(tmp_path / "bad.csv", [f"+{LAGOS},x", f"+{QUIET},x", f"+{ACCRA},x"])
    run.clear()
    corrected = run.run_try()
    assert (corrected.state, corrected.result["lookups"], corrected.result["cached"]) == ("success", 1, 2)


def test_failed_lookup_is_a_line_and_is_made_again_by_the_retry(
    task_runner: TaskRunner, numbers: str, tmp_path: Path
) -> None:
    task_runner.sandbox.control(*fault("lookup_phone", "broken_json", times=1))
    run = look_up(task_runner, numbers, tmp_path / "out.jsonl")
    first = run.run_try()
    assert (first.state, first.report["lookup_failed"] in (1, 2)) == ("up_for_retry", True)
    second = run.run_try()
    assert (second.state, second.result["lookups"], second.result["cached"]) == ("success", 1, 5)


def test_failing_service_ends_the_try_early(task_runner: TaskRunner, numbers: str, tmp_path: Path) -> None:
    source = written(tmp_path / "many.csv", [f"+23480359{number:05d},x" for number in range(190)])
    task_runner.sandbox.control(*fault("lookup_phone", "broken_json", times=10_000))
    ended = look_up(task_runner, source, tmp_path / "out.jsonl").run_try()
    assert ended.state == "up_for_retry"
    assert "10 lookups in a row failed" in ended.error
    assert requests(task_runner) < 40


def test_empty_account_fails_the_task_with_what_to_do(task_runner: TaskRunner, numbers: str, tmp_path: Path) -> None:
    task_runner.sandbox.control(*balance(1))
    ended = look_up(task_runner, numbers, tmp_path / "out.jsonl").run_try()
    assert ended.state == "failed"
    assert "Top up the account" in ended.error


def test_limit_of_lookups_ends_the_task_before_it_is_exceeded(
    task_runner: TaskRunner, numbers: str, tmp_path: Path
) -> None:
    ended = look_up(task_runner, numbers, tmp_path / "out.jsonl", max_lookups=5).run_try()
    assert (ended.state, requests(task_runner)) == ("failed", 0)
    assert "max_lookups (5) is reached: 0 numbers looked up in this try, and 6 more would follow." in ended.error
    assert "or in the params of a new run" in ended.error
    assert look_up(task_runner, numbers, tmp_path / "out.jsonl", max_lookups=6).run_try().state == "success"


def test_failed_lookups_count_for_the_limit(task_runner: TaskRunner, tmp_path: Path) -> None:
    task_runner.sandbox.control(*fault("lookup_phone", "broken_json", times=5))
    source = written(tmp_path / "many.csv", [f"+23480356{number:05d},x" for number in range(203)])
    ended = look_up(task_runner, source, tmp_path / "out.jsonl", max_lookups=200).run_try()
    assert (ended.state, requests(task_runner), ended.report["lookups"]) == ("failed", 200, 195)
    assert "max_lookups (200) is reached: 200 numbers looked up in this try, and 3 more would follow." in ended.error


def test_missing_column_costs_nothing(task_runner: TaskRunner, numbers: str, tmp_path: Path) -> None:
    ended: Try = look_up(task_runner, numbers, tmp_path / "out.jsonl", phone_column="mobile").run_try()
    assert (ended.state, requests(task_runner)) == ("failed", 0)
    assert "has no column mobile. It has: phone, name" in ended.error


def test_first_number_of_a_file_without_a_header_is_not_shown(task_runner: TaskRunner, tmp_path: Path) -> None:
    source = tmp_path / "headless.csv"
    source.write_text(f"+{LAGOS},Ada\n+{ACCRA},Bola\n")
    ended = look_up(task_runner, str(source), tmp_path / "out.jsonl").run_try()
    assert (ended.state, requests(task_runner)) == ("failed", 0)
    assert "it seems to have no header. Nothing was looked up." in ended.error
    assert LAGOS not in ended.error


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"results_path": None}, "results_path is None"),
        ({"results_path": "out.csv"}, "results_path"),
        ({"include_columns": "name"}, "include_columns must be a list"),
        ({"include_columns": ["dnd"]}, "include_columns has dnd"),
        ({"max_lookups": -1}, "max_lookups must be a whole number"),
        ({"max_failure_ratio": 2}, "max_failure_ratio"),
        ({"lookup_ttl": "30 days"}, "lookup_ttl"),
    ],
)
def test_argument_that_cannot_work_is_refused_in_the_dag_file(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words), new_dag():
        BulkPhoneLookupOperator(task_id="bad", **{"source": [], "results_path": "out.jsonl", **given})


class TestPaidForOnce:
    """What was paid for is used again, whatever the service answers and however the cache is keyed."""

    @pytest.fixture(autouse=True)
    def database(self, own_database: None, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)

    @pytest.mark.parametrize("operator", ["\0", "MTN\0", "\ud800"])
    @pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
    def test_answer_that_no_database_takes_is_stored_without_that_character(
        self, task_runner: TaskRunner, tmp_path: Path, operator: str, suffix: str
    ) -> None:
        body = json.dumps({"msisdn": LAGOS, "operator": operator, "country": operator}).encode()
        source, results = [{"phone": LAGOS, "name": operator}], tmp_path / f"out{suffix}"
        with fixed_response_server(200, body, Content_Type="application/json") as url:
            task_runner.connect("cpaas_default", host=url)
            done = look_up(task_runner, source, results, include_columns=["name"]).run_try()
        assert (done.state, done.result["lookups"]) == ("success", 1), done.error
        again = look_up(task_runner, source, results, include_columns=["name"]).run_try()
        assert (again.state, again.result["cached"]) == ("success", 1)

    def test_number_that_comes_again_later_in_the_list_is_looked_up_once_without_a_cache(
        self, task_runner: TaskRunner, tmp_path: Path
    ) -> None:
        rows = [f"+23480357{number:05d},Name" for number in range(200)]
        source = written(tmp_path / "many.csv", [*rows, rows[0], rows[7]])
        done = look_up(task_runner, source, tmp_path / "out.jsonl", lookup_ttl=0).run_try()
        assert (done.result["rows"], done.result["lookups"], requests(task_runner)) == (202, 200, 200)

    @pytest.mark.parametrize("secrets", [("old", "new,old"), ("", "first")])
    def test_lookups_from_before_a_new_callback_secret_are_found(
        self, task_runner: TaskRunner, numbers: str, tmp_path: Path, secrets: tuple[str, str]
    ) -> None:
        for secret in secrets:
            task_runner.connect("cpaas_default", **({"callback_secret": secret} if secret else {}))
            done = look_up(task_runner, numbers, tmp_path / "out.jsonl").run_try()
        assert (done.result["lookups"], done.result["cached"], requests(task_runner)) == (0, 6, 6)
        with new_dag() as dag:
            SmsCampaignOperator(task_id="send", source=numbers, content="Hello", skip_dnd=True)
        assert Run(task_runner, dag).run_try().result["dnd"] == 1
        assert requests(task_runner) == 6

    def test_lookups_are_stored_while_others_are_still_made(
        self, task_runner: TaskRunner, numbers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task_runner.connect("cpaas_default", max_concurrency=1)
        look_up_number, stored = AsyncCpaasClient.run, list[int]()

        async def slow_last(client: AsyncCpaasClient, call: Any) -> Any:
            if NUMBERS[-1] in str(call.fields):
                with open_database() as database, database.connect() as connection:
                    for _ in range(500):
                        found = connection.execute(select(func.count()).select_from(phone_records)).scalar_one()
                        if found == len(NUMBERS) - 1:
                            break
                        await asyncio.sleep(0.01)
                stored.append(found)
            return await look_up_number(client, call)

        monkeypatch.setattr(lookups, "_STORE_EVERY", 0.01)
        monkeypatch.setattr(AsyncCpaasClient, "run", slow_last)
        assert look_up(task_runner, numbers, tmp_path / "out.jsonl").run_try().state == "success"
        assert stored == [len(NUMBERS) - 1]
