"""What counts as a row of a campaign, and which words stand for a missing value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.sources import CsvSource
from tests.airflow.harness.campaigns import (
    TEXT,
    all_requests,
    count_messages,
    counts,
    digits,
    last_texts,
    requests,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import TaskRunner


def as_csv(path: Path, lines: list[str]) -> str:
    path.write_text("\r\n".join(lines) + "\r\n")
    return str(path)


def people(count: int) -> list[str]:
    return [f"{row['phone']},{row['name']},Lagos," for row in rows(count)]


def test_lines_of_delimiters_at_the_end_of_an_export_are_no_rows(task_runner: TaskRunner, tmp_path: Path) -> None:
    source = as_csv(tmp_path / "a.csv", ["Phone,Name,City,", *people(23), *[",,,"] * 16])
    results = tmp_path / "results.jsonl"
    done = sms(task_runner, source, results_path=str(results)).run_try()
    assert (done.state, counts(done.result)) == ("success", {"sent": 23})
    assert set(count_messages(task_runner)) == set(digits(23))
    assert [json.loads(line)["row"] for line in results.read_text().splitlines()] == list(range(2, 25))


def test_lines_of_delimiters_do_not_use_up_the_tolerance(task_runner: TaskRunner, tmp_path: Path) -> None:
    source = as_csv(tmp_path / "a.csv", ["phone,name,city,", *people(23), ",no number,,", *[",,,"] * 16])
    done = sms(task_runner, source, max_failure_ratio=0.05).run_try()
    assert (done.state, counts(done.result)) == ("success", {"sent": 23, "invalid_rows": 1})


def test_suppression_list_may_end_with_lines_of_delimiters(task_runner: TaskRunner, tmp_path: Path) -> None:
    banned = as_csv(tmp_path / "banned.csv", [",PHONE,why", f"0,+{digits(1)[0]},asked", *[",,"] * 16])
    done = sms(task_runner, rows(3), suppression_list=banned).run_try()
    assert (done.state, counts(done.result)) == ("success", {"sent": 2, "suppressed": 1})


def test_test_recipient_without_any_value_ends_the_campaign(task_runner: TaskRunner) -> None:
    done = sms(task_runner, rows(3), test_recipients=[{"phone": "", "name": None}]).run_try()
    assert (done.state, all_requests(task_runner)) == ("failed", 0)
    assert "test_recipients has an entry without any value. Nothing was sent." in done.error


def test_column_that_several_headers_match_is_refused(task_runner: TaskRunner, tmp_path: Path) -> None:
    source = as_csv(tmp_path / "a.csv", ["Phone,name,PHONE", "+2348031200000,Ada,+2348031200001"])
    done = sms(task_runner, source).run_try()
    assert (done.state, all_requests(task_runner)) == ("up_for_retry", 0)
    assert "Columns 1 and 3 of CSV file" in done.error


def test_file_that_is_still_written_sends_nothing(
    task_runner: TaskRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    as_csv(path, ["phone,name,city,", *people(3)])
    from cpaas_provider.sources.csv_file import _CsvTable

    read = _CsvTable.rows

    def rows_while_written(table: Any, wanted: Any) -> Any:
        yield from read(table, wanted)
        with path.open("a") as file:
            file.write("+23480312000")

    monkeypatch.setattr(_CsvTable, "rows", rows_while_written)
    done = sms(task_runner, str(path)).run_try()
    assert (done.state, requests(task_runner)) == ("up_for_retry", 0)
    assert "changed while it was read" in done.error


def test_words_for_a_missing_value_are_counted_and_shown(task_runner: TaskRunner, tmp_path: Path) -> None:
    lines = ["phone,name", *(f"+{phone},nan" for phone in digits(12)), f"+{digits(1, 12)[0]},None"]
    source = as_csv(tmp_path / "a.csv", lines)
    done = sms(task_runner, source, substitution_defaults={"name": "customer"}, dry_run=True).run_try()
    assert done.result["missing_words"] == {"name": {"nan": 12, "None": 1}}
    assert "12 rows have the word 'nan' in {name}" in done.log
    assert "1 row has the word 'None' in {name}" in done.log
    sent = sms(task_runner, source, substitution_defaults={"name": "customer"}).run_try()
    assert sent.result["missing_words"] == {"name": {"nan": 12, "None": 1}}
    assert set(last_texts(task_runner).values()) == {TEXT.format(name="customer")}


def test_row_with_a_word_for_a_missing_value_and_no_default_is_invalid(task_runner: TaskRunner, tmp_path: Path) -> None:
    lines = ["phone,name", "+2348031200000,Ada", "+2348031200001,nan"]
    done = sms(task_runner, as_csv(tmp_path / "a.csv", lines)).run_try()
    assert (done.state, done.report["invalid_rows"]) == ("failed", 1)
    assert done.report["missing_words"] == {"name": {"nan": 1}}


def test_source_that_lists_its_missing_values_makes_other_words_values(task_runner: TaskRunner, tmp_path: Path) -> None:
    lines = ["phone,name", "+2348031200000,Null", "+2348031200001,null", "+2348031200002,-"]
    source = CsvSource(as_csv(tmp_path / "a.csv", lines), missing_values=["-"])
    done = sms(task_runner, source, max_failure_ratio=0.5).run_try()
    assert counts(done.result) == {"sent": 2, "invalid_rows": 1}
    assert done.result["missing_words"] == {"name": {"null": 1}}
    assert set(last_texts(task_runner).values()) == {TEXT.format(name="Null"), TEXT.format(name="null")}


def test_words_that_a_source_lists_as_missing_are_not_counted(task_runner: TaskRunner, tmp_path: Path) -> None:
    source = CsvSource(as_csv(tmp_path / "a.csv", ["phone,name", "+2348031200000,nan"]), missing_values=["nan"])
    done = sms(task_runner, source, substitution_defaults={"name": "customer"}).run_try()
    assert (counts(done.result), done.result["missing_words"]) == ({"sent": 1}, {})


def test_table_of_arrow_is_read_as_rows(task_runner: TaskRunner) -> None:
    arrow = pytest.importorskip("pyarrow")
    done = sms(
        task_runner, arrow.table({"Phone": [row["phone"] for row in rows(3)], "Name": ["Ada", "Bo", "Cy"]})
    ).run_try()
    assert (done.state, set(count_messages(task_runner))) == ("success", set(digits(3)))
