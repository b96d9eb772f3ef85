"""Output of an upstream task is data; only the text of the DAG file is a template."""

from __future__ import annotations

import pytest
from airflow.sdk import DAG, task

from cpaas_provider.operators.sms import SendSmsOperator
from tests.airflow.harness.running import DagRunResult, run
from tests.sandbox import Sandbox, connection_json

PROBE = "{{ conn.cpaas_default.password }} {{ run_id }}"


@pytest.fixture(scope="module")
def sent(sandbox_process: Sandbox, airflow_db: object) -> tuple[DagRunResult, set[str], Sandbox]:
    """Run a DAG that maps over an upstream result and over literals; return what arrived."""
    sandbox_process.reset()
    with pytest.MonkeyPatch.context() as patch:
        connection = connection_json(sandbox_process.connection, sender_id="ACME", default_region="US")
        patch.setenv("AIRFLOW_CONN_CPAAS_DEFAULT", connection)
        with DAG("mapped_data", schedule=None) as dag:

            @task
            def rows() -> list[dict[str, object]]:
                return [{"recipients": ["+2348031234561"], "content": f"kwargs {PROBE}", "external_ref": PROBE}]

            @task
            def row() -> dict[str, object]:
                return {"recipients": ["+2348031234566"], "content": f"in a list {PROBE}"}

            @task
            def texts() -> list[str]:
                return [f"expand {PROBE}"]

            SendSmsOperator.partial(task_id="kwargs", template_id=None).expand_kwargs(rows())
            SendSmsOperator.partial(task_id="listed").expand_kwargs(
                [row(), {"recipients": "+2348031234567", "content": "beside {{ run_id }}"}]
            )
            SendSmsOperator.partial(task_id="expand", recipients=["+2348031234562"]).expand(content=texts())
            SendSmsOperator.partial(task_id="literal").expand_kwargs(
                [{"recipients": "+2348031234563", "content": "literal {{ run_id }}"}]
            )
            # Digits that a US reader could take for a national number once more.
            SendSmsOperator(task_id="foreign", recipients=["+65 9234 5678"], content="foreign")
            SendSmsOperator(
                task_id="incomplete",
                recipients=["+2348031234564", "+2348031234565"],
                content="Dear {name}",
                personalisation=[{"to": "+2348031234564", "substitutions": {"name": "Ada"}}],
                retries=3,
            )
        finished = run(dag)
    return finished, {item["text"] for item in sandbox_process.inbox("sms")["items"]}, sandbox_process


def test_data_through_expand_kwargs_is_not_rendered(sent: tuple[DagRunResult, set[str], Sandbox]) -> None:
    assert f"kwargs {PROBE}" in sent[1]
    assert sent[0].rendered("kwargs", 0)["external_ref"] == PROBE


def test_data_in_a_literal_list_is_not_rendered_and_the_author_s_own_words_are(
    sent: tuple[DagRunResult, set[str], Sandbox],
) -> None:
    assert {f"in a list {PROBE}", f"beside {sent[0].run_id}"} <= sent[1]


def test_data_through_expand_is_not_rendered(sent: tuple[DagRunResult, set[str], Sandbox]) -> None:
    assert f"expand {PROBE}" in sent[1]


def test_literal_list_of_the_dag_file_is_rendered(sent: tuple[DagRunResult, set[str], Sandbox]) -> None:
    assert f"literal {sent[0].run_id}" in sent[1]


def test_foreign_number_is_unchanged(sent: tuple[DagRunResult, set[str], Sandbox]) -> None:
    assert [item["recipient"] for item in sent[2].inbox("sms")["items"] if item["text"] == "foreign"] == ["6592345678"]


def test_text_with_an_unfilled_placeholder_is_not_sent(sent: tuple[DagRunResult, set[str], Sandbox]) -> None:
    assert (sent[0].state("incomplete"), sent[0].tries("incomplete")) == ("failed", 1)
    assert not any("Dear" in text for text in sent[1])
