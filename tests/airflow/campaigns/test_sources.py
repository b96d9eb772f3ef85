"""Campaigns from every kind of source, by either channel, with templates and placeholders of every kind."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
from airflow.sdk import DAG, task

from cpaas_provider._common.rendering import render
from cpaas_provider.operators.email import EmailCampaignOperator
from cpaas_provider.operators.sms import SmsCampaignOperator
from cpaas_provider.sources import CsvSource, JsonLinesSource, ListSource, ParquetSource, SqlSource
from tests.airflow.harness.campaigns import TEXT, count_messages, counts, digits, email, last_texts, requests, rows, sms
from tests.airflow.harness.running import run as run_dag
from tests.airflow.harness.task_runner import TaskRunner
from tests.airflow.harness.tries import Run, new_dag

EIGHT = digits(8)


def as_csv(folder: Path) -> Any:
    path = folder / "people.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, ["phone", "name"], delimiter=";")
        writer.writeheader()
        writer.writerows(rows(8))
    return str(path)


def as_json_lines(folder: Path) -> Any:
    path = folder / "people.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(8)))
    return f"file://{path}"


def as_parquet(folder: Path) -> Any:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = folder / "people.parquet"
    parquet.write_table(arrow.Table.from_pylist(rows(8)), path)
    return ParquetSource(str(path))


def as_sql(folder: Path) -> Any:
    with sqlite3.connect(folder / "people.db") as database:
        database.execute("CREATE TABLE people (phone, name)")
        database.executemany("INSERT INTO people VALUES (:phone, :name)", rows(8))
    return SqlSource("campaign_people", "SELECT phone, name FROM people WHERE name LIKE ?", ["Person%"])


KINDS = {
    "csv": as_csv,
    "csv source": lambda folder: CsvSource(as_csv(folder), delimiter=";"),
    "json lines": as_json_lines,
    "json lines source": lambda folder: JsonLinesSource(as_json_lines(folder)),
    "parquet": as_parquet,
    "sql": as_sql,
    "list": lambda folder: rows(8),
    "list source": lambda folder: ListSource(rows(8)),
}


@pytest.fixture(autouse=True)
def people_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_CAMPAIGN_PEOPLE", json.dumps({"conn_type": "sqlite", "host": f"{tmp_path}/people.db"})
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_source_sends_the_same_messages(task_runner: TaskRunner, tmp_path: Path, kind: str) -> None:
    if kind == "sql":
        pytest.importorskip("airflow.providers.sqlite")
    done = sms(task_runner, KINDS[kind](tmp_path)).run_try()
    assert (done.state, counts(done.result)) == ("success", {"sent": 8})
    assert last_texts(task_runner) == {one: TEXT.format(name=f"Person {n}") for n, one in enumerate(EIGHT)}


def test_query_of_an_unknown_table_fails_without_a_retry(task_runner: TaskRunner, tmp_path: Path) -> None:
    pytest.importorskip("airflow.providers.sqlite")
    as_sql(tmp_path)
    source = SqlSource("campaign_people", "SELECT phone FROM custmers")
    failed = sms(task_runner, source, retries=3).run_try()
    assert failed.state == "failed"
    assert "failed (OperationalError, SQLITE_ERROR)" in failed.error
    assert failed.error.endswith("Nothing was sent in this try.")


def run_without_date(task_runner: TaskRunner, idempotency_key: str) -> Run:
    """Return a run as ``airflow dags trigger`` makes it, without a logical date."""
    with new_dag() as dag:
        SmsCampaignOperator(task_id="campaign", source=rows(2), content=TEXT, idempotency_key=idempotency_key)
    return Run(task_runner, dag, logical_date=None)


def test_template_of_the_day_works_without_a_logical_date(task_runner: TaskRunner) -> None:
    key = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"
    sent = run_without_date(task_runner, f"day-{key}").run_try()
    assert (sent.state, sent.result["sent"]) == ("success", 2), sent.error
    again = sms(task_runner, rows(2), idempotency_key=f"day-{key}").run_try()
    assert (again.state, requests(task_runner)) == ("success", 1), again.error


def test_template_of_ds_without_a_logical_date_fails_with_one_that_works() -> None:
    template = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string("day-{{ ds }}")
    with pytest.raises(jinja2.UndefinedError, match=r"'ds' is undefined. The run has no logical date.* \| ds }}"):
        render(object(), template, {"dag_run": SimpleNamespace(logical_date=None)})


def test_source_of_another_kind_after_a_clear_sends_nothing_again(task_runner: TaskRunner, tmp_path: Path) -> None:
    run = sms(task_runner, as_csv(tmp_path))
    run.run_try()
    again = run.change(source=as_json_lines(tmp_path)).clear().run_try()
    assert (again.state, requests(task_runner)) == ("success", 1)


def test_output_of_an_upstream_task_is_a_source(task_runner: TaskRunner) -> None:
    with DAG("campaign_of_a_task", schedule=None) as dag:

        @task
        def people() -> list[dict[str, Any]]:
            return [*rows(3), {"phone": "+2348031200009", "name": "{{ conn.cpaas_default.password }}"}]

        SmsCampaignOperator(task_id="campaign", source=people(), content=TEXT)
    with task_runner.record_logs():
        done = run_dag(dag)
    assert (done.state("campaign"), done.xcom("campaign")["sent"]) == ("success", 4)
    assert count_messages(task_runner) == Counter([*digits(3), "2348031200009"])
    # What a task hands over is data.
    assert task_runner.sandbox.api_key not in last_texts(task_runner)["2348031200009"]
    assert done.rendered("campaign")["source"] == "list of 4 items"


def test_outputs_of_mapped_upstream_tasks_are_a_source(task_runner: TaskRunner) -> None:
    with DAG("campaign_of_mapped_tasks", schedule=None) as dag:

        @task
        def person(number: int) -> dict[str, Any]:
            return rows(1, number)[0]

        SmsCampaignOperator(task_id="campaign", source=person.expand(number=[0, 1, 2]), content=TEXT)
    with task_runner.record_logs():
        done = run_dag(dag)
    assert (done.state("campaign"), count_messages(task_runner)) == ("success", Counter(digits(3)))


def test_bare_recipients_need_no_columns(task_runner: TaskRunner) -> None:
    done = sms(task_runner, ["08031200000", "+2348031200001"], content="The same to all").run_try()
    assert (done.state, set(last_texts(task_runner).values())) == ("success", {"The same to all"})


def test_path_is_a_template(task_runner: TaskRunner, tmp_path: Path) -> None:
    as_csv(tmp_path)
    assert sms(task_runner, f"{tmp_path}/{{{{ 'people' }}}}.csv").run_try().state == "success"


@pytest.mark.parametrize(
    ("source", "state", "words"),
    [
        ("/nowhere/at/all.csv", "up_for_retry", "Nothing was sent"),
        ("people.doc", "failed", "suffix"),
        ("[{'phone': '+2348031200000'}]", "failed", "render_template_as_native_obj"),
        (5, "failed", "No rows can be read"),
        (None, "failed", "source is empty"),
    ],
)
def test_source_that_cannot_be_read_sends_nothing(task_runner: TaskRunner, source: Any, state: str, words: str) -> None:
    failed = sms(task_runner, source).run_try()
    assert (failed.state, requests(task_runner)) == (state, 0)
    assert words in failed.error
    assert "2348031200000" not in failed.error


def test_column_that_is_missing_is_named(task_runner: TaskRunner, tmp_path: Path) -> None:
    failed = sms(task_runner, as_csv(tmp_path), content="Hello {surname}", recipient_column="tel").run_try()
    assert (failed.state, requests(task_runner)) == ("failed", 0)
    assert "no column surname, tel. It has: phone, name" in failed.error


class TestPlaceholders:
    def test_placeholder_is_filled_from_a_column_of_another_name(self, task_runner: TaskRunner) -> None:
        sms(task_runner, rows(1), content="Hello {you}", substitutions={"you": "name"}).run_try()
        assert last_texts(task_runner) == {EIGHT[0]: "Hello Person 0"}

    def test_substitution_default_fills_an_empty_cell(self, task_runner: TaskRunner) -> None:
        given = [*rows(1), {"phone": f"+{EIGHT[1]}", "name": None}]
        done = sms(task_runner, given, substitution_defaults={"name": "friend"}).run_try()
        assert (done.state, last_texts(task_runner)[EIGHT[1]]) == ("success", TEXT.format(name="friend"))

    def test_default_without_its_placeholder_is_refused(self, task_runner: TaskRunner) -> None:
        failed = sms(task_runner, rows(1), substitution_defaults={"nmae": "friend"}).run_try()
        assert (failed.state, "names nmae, and the text has no such placeholder" in failed.error) == ("failed", True)

    def test_placeholder_without_a_column_is_refused_and_nothing_is_sent(self, task_runner: TaskRunner) -> None:
        failed = sms(task_runner, rows(3), content="Hello {name}, {code}", substitutions=["name"]).run_try()
        assert (failed.state, count_messages(task_runner)) == ("failed", {})
        assert "code" in failed.error

    def test_empty_substitutions_leave_braces_as_text(self, task_runner: TaskRunner) -> None:
        done = sms(task_runner, rows(1), content="Braces like {these}", substitutions=[]).run_try()
        assert (done.state, last_texts(task_runner)) == ("success", {EIGHT[0]: "Braces like {these}"})

    def test_placeholder_format_can_be_changed(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", placeholder_format="%name%")
        task_runner.sandbox.control("PUT", "settings", {"placeholder_format": "%name%"})
        sms(task_runner, rows(1), content="Hello %name% {name}").run_try()
        assert last_texts(task_runner) == {EIGHT[0]: "Hello Person 0 {name}"}

    def test_placeholders_of_a_service_template_are_filled(self, task_runner: TaskRunner) -> None:
        given = rows(2, company="Shop")
        done = sms(
            task_runner, given, content=None, template_id="tpl_welcome", substitutions=["name", "company"]
        ).run_try()
        assert (done.state, done.result["pages"]) == ("success", {})
        assert last_texts(task_runner)[EIGHT[1]] == "Hello Person 1, welcome to Shop!"

    def test_empty_content_sends_nothing(self, task_runner: TaskRunner) -> None:
        failed = sms(task_runner, rows(1), content="{{ '' }}").run_try()
        assert (failed.state, "content is empty after rendering" in failed.error) == ("failed", True)

    @pytest.mark.parametrize("given", ["name", 5])
    def test_invalid_substitutions_are_refused(self, task_runner: TaskRunner, given: Any) -> None:
        with pytest.raises(ValueError, match="substitutions must be a list of texts"):
            sms(task_runner, rows(1), substitutions=given)


class TestEmail:
    PEOPLE = [{"email": f"Person{n}@Example.org", "name": f"Person {n}"} for n in range(4)]  # noqa: RUF012 - never changed

    def test_each_recipient_gets_their_own_subject_and_body(self, task_runner: TaskRunner) -> None:
        done = email(
            task_runner, self.PEOPLE, subject="For {name}", from_name="The shop", reply_to="office@example.com"
        ).run_try()
        assert (done.state, counts(done.result), requests(task_runner, "send_email")) == ("success", {"sent": 4}, 1)
        found = {one["text"]: one["subject"] for one in task_runner.sandbox.inbox("email")["items"]}
        assert found == {TEXT.format(name=f"Person {n}"): f"For Person {n}" for n in range(4)}

    def test_duplicates_in_any_case_of_the_domain_are_sent_once(self, task_runner: TaskRunner) -> None:
        done = email(task_runner, [*self.PEOPLE, {"email": "Person1@EXAMPLE.ORG", "name": "Again"}]).run_try()
        assert counts(done.result) == {"sent": 4, "duplicates": 1}

    def test_placeholder_of_the_subject_alone_is_filled(self, task_runner: TaskRunner) -> None:
        email(task_runner, self.PEOPLE[:1], content="The same to all", subject="For {name}").run_try()
        (one,) = task_runner.sandbox.inbox("email")["items"]
        assert (one["subject"], one["text"]) == ("For Person 0", "The same to all")

    def test_recipients_named_in_a_rejection_are_left_out(self, task_runner: TaskRunner) -> None:
        arrived = Counter()
        task_runner.sandbox.control(
            "POST", "seed", {"refused_recipients": ["person2@example.org", "Person2@example.org"]}
        )
        failed = email(task_runner, self.PEOPLE).run_try()
        arrived = count_messages(task_runner, "email")
        assert counts(failed.report) == {"sent": 3, "rejected": 1}
        assert sum(arrived.values()) == 3

    def test_email_without_a_sender_sends_nothing(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", email_sender_id="")
        failed = email(task_runner, self.PEOPLE).run_try()
        assert (failed.state, requests(task_runner, "send_email")) == ("failed", 0)
        assert "email_sender_id" in failed.error

    def test_email_campaign_does_not_continue_an_sms_campaign(self, task_runner: TaskRunner) -> None:
        run = sms(task_runner, rows(2))
        run.run_try()
        operator = EmailCampaignOperator(task_id="other", source=self.PEOPLE, content=TEXT)
        run.dag.task_dict["campaign"] = operator
        operator.task_id, operator.dag = "campaign", run.dag
        failed = run.clear().run_try()
        assert (failed.state, requests(task_runner, "send_email")) == ("up_for_retry", 0)
        assert "another kind of send" in failed.error
