"""SendEmailOperator as real task instances."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from airflow.sdk import task

from cpaas_provider.operators.email import SendEmailOperator
from tests.airflow.harness.task_runner import TaskRunner, address, balance, busy, fault, open_task_runner
from tests.sandbox import Sandbox
from tests.unit.docs.results import documented_keys

NOT_SENT = {"rate_limit": [busy("send_email")], "unavailable": [busy("send_email", "unavailable")]}
UNKNOWN = {
    "cut_after": [fault("send_email", "cut_after")],
    "broken_json": [fault("send_email", "broken_json")],
    "missing_id": [fault("send_email", "missing_field", field="id")],
}
# How an email may be refused, by the service or before it leaves: what to set up, the arguments, what the error says.
PERMANENT = {
    "wrong_key": ([], {"cpaas_conn_id": "cpaas_wrong_key"}, "API key"),
    "no_balance": ([balance(0.1)], {}, "Top up the account"),
    "no_body": ([], {"content": "{{ '' }}"}, "content is empty after rendering"),
    "no_sender": ([], {"cpaas_conn_id": "cpaas_no_sender"}, "No sender address"),
    "bad_sender": ([], {"sender_id": "not an address"}, "sender_id"),
    "bad_reply_to": ([], {"reply_to": "nobody"}, "reply_to"),
    "header_injection": ([], {"subject": "Hello\r\nBcc: all@example.com"}, "line breaks"),
    **{
        f"line_break_{ord(mark):x}_in_{field}": (
            [],
            {field: f"Hello{mark}Bcc"},
            f"{field} must not contain line breaks",
        )
        for field in ("subject", "from_name")
        for mark in "\n\x0b\x85\u2028"
    },
    "line_break_in_subject_value": (
        [],
        {
            "subject": "Hello {name}",
            "personalisation": [
                {
                    "to": address("permanent_line_break_in_subject_value"),
                    "substitutions": {"name": "Ada\u2028Bcc: all@example.com"},
                }
            ],
        },
        "personalisation has a line break or another control character in a value of the subject (name)",
    ),
    "body_as_number": ([], {"content": 12345}, "content"),
    "personalised_by_text": ([], {"personalisation": "[{'to': 1}]"}, "personalisation"),
    "broken_template": ([], {"subject": "{{ params.nothing.at.all }}"}, "template of subject cannot be rendered"),
}
BAD_RECIPIENTS = {
    "no_domain": (["ada"], "recipient 1 is not an email address"),
    "second_of_two": ([address("good_one"), "a@@b"], "recipient 2 is not an email address"),
    "a_number": ([4711], "recipient 1 must be text"),
    "empty": ([], "recipients is empty"),
}


@pytest.fixture(scope="module")
def finished_run(airflow_db: object, sandbox_process: Sandbox) -> Iterator[TaskRunner]:
    staging = {"allowed_recipients": f"{address('allowed')}, @inside.example.com"}
    with open_task_runner(
        sandbox_process,
        cpaas_no_sender={"email_sender_id": ""},
        cpaas_staging=staging,
        cpaas_small={"recipients_per_request": 2},
    ) as task_runner:

        def email(case: str, *trouble: tuple, **given: object) -> SendEmailOperator:
            arguments = {"recipients": [address(case)], "content": "Hello"} | given
            return SendEmailOperator(task_id=task_runner.prepare(case, *trouble), **arguments)

        with task_runner.dag("email", params={"shop": "Shoes", "to": address("by_params")}) as dag:
            email(
                "rendered",
                recipients="{{ params.to }}",
                content="Dear {name}, from {{ params.shop }}",
                subject="News of {{ params.shop }}",
                sender_id="{{ params.shop | lower }}@example.com",
                from_name="{{ params.shop }} Ltd",
                reply_to="help@{{ params.shop | lower }}.example.com",
                personalisation=[{"to": "{{ params.to }}", "substitutions": {"name": "{{ params.shop }} friend"}}],
                external_ref="ref-{{ dag.dag_id }}",
                callback="http://127.0.0.1:9/{{ params.shop }}",
                cpaas_conn_id="cpaas_{{ 'default' }}",
            )
            email(
                "templated",
                content=None,
                template_id="tpl_{{ 'newsletter' }}",
                personalisation=[{"to": address("templated"), "substitutions": {"name": "Ada", "company": "Shoes"}}],
            )

            @task
            def people() -> list[str]:
                return [address("from_task_1"), address("from_task_2")]

            email("from_task", recipients=people())
            email("repeats", recipients=f"{address('a')}, {address('a').replace('example', 'EXAMPLE')}")
            email(
                "capitals",
                recipients=["Cap.Itals@people.example.com", "cap.itals@people.example.com"],
                content="Dear {name}",
                personalisation=[{"to": "CAP.ITALS@people.example.com", "substitutions": {"name": "Ada"}}],
            )
            SendEmailOperator.partial(task_id="mapped", content="Number {{ ti.map_index }}").expand(
                recipients=[[address("mapped_0")], ["nobody"]]
            )
            for name, trouble in NOT_SENT.items():
                email(f"not_sent_{name}", *trouble)
            for name, trouble in UNKNOWN.items():
                email(f"unknown_{name}", *trouble)
            for name, (trouble, arguments, _) in PERMANENT.items():
                email(f"permanent_{name}", *trouble, **arguments)
            for name, (recipients, _) in BAD_RECIPIENTS.items():
                email(f"bad_{name}", recipients=recipients)
            email(
                "staging_some",
                recipients=[address("allowed"), address("outsider"), "Any@Inside.Example.com"],
                cpaas_conn_id="cpaas_staging",
            )
            email("staging_nobody", cpaas_conn_id="cpaas_staging")
            email("too_many", recipients=[address("m1"), address("m2"), address("m3")], cpaas_conn_id="cpaas_small")
        yield task_runner.run_dag(dag)


class TestRendering:
    def test_templated_fields_reach_the_service_rendered(self, finished_run: TaskRunner) -> None:
        (message,) = finished_run.inbox_items("email", address("by_params"))
        assert message["text"] == "Dear Shoes friend, from Shoes"
        assert message["subject"] == "News of Shoes"
        assert message["sender_id"] == "shoes@example.com"
        assert message["from_name"] == "Shoes Ltd"
        assert message["reply_to"] == "help@shoes.example.com"
        assert message["external_ref"] == "ref-email"
        assert message["callback"] == "http://127.0.0.1:9/Shoes"

    def test_template_of_the_service_is_filled(self, finished_run: TaskRunner) -> None:
        (message,) = finished_run.inbox_items("email", address("templated"))
        assert message["text"].startswith("Dear Ada,")

    def test_recipients_come_from_an_upstream_task(self, finished_run: TaskRunner) -> None:
        assert finished_run.xcom("from_task")["recipients"] == 2
        assert len(finished_run.inbox_items("email", address("from_task_2"))) == 1

    def test_rendered_tab_shows_summaries_of_what_is_private(self, finished_run: TaskRunner) -> None:
        shown = finished_run.rendered("rendered")
        assert shown["recipients"] == "1 recipient: b****@people.example.com"
        assert shown["content"] == "<23 characters>"
        assert shown["subject"] == "<13 characters>"
        assert shown["reply_to"] == "h****@shoes.example.com"
        assert shown["personalisation"] == "<1 entries>"
        assert shown["callback"] == "http://127.0.0.1/***"
        assert shown["from_name"] == "Shoes Ltd"


class TestResult:
    def test_result_has_ids_counts_and_cost(self, finished_run: TaskRunner) -> None:
        (message,) = finished_run.inbox_items("email", address("by_params"))
        result = finished_run.xcom("rendered")
        assert set(result) == documented_keys(SendEmailOperator) == {
            "id", "recipients", "charge", "balance", "created_datetime", "skipped_not_allowed",
            "skipped_suppressed", "skipped_frequency_cap",
            "references", "delivery_reports", "unknown_recipients", "unknown_references",
        }  # fmt: skip
        assert (result["id"], result["recipients"], result["charge"]) == (message["message_id"], 1, 0.5)

    def test_address_named_twice_gets_one_email(self, finished_run: TaskRunner) -> None:
        assert finished_run.xcom("repeats")["recipients"] == 1

    def test_address_in_another_case_is_the_same_recipient(self, finished_run: TaskRunner) -> None:
        assert finished_run.xcom("capitals")["recipients"] == 1
        (message,) = finished_run.inbox_items("email", "Cap.Itals@people.example.com")
        assert message["text"] == "Dear Ada"

    def test_mapped_instances_send_their_own_and_an_invalid_one_fails_alone(self, finished_run: TaskRunner) -> None:
        (message,) = finished_run.inbox_items("email", address("mapped_0"))
        assert message["text"] == "Number 0"
        assert [finished_run.outcome("mapped", index) for index in (0, 1)] == [("success", 1), ("failed", 1)]
        assert finished_run.rendered("mapped", 0)["recipients"] == "1 recipient: m****@people.example.com"


class TestRetries:
    @pytest.mark.parametrize("kind", NOT_SENT)
    def test_request_not_sent_is_sent_by_the_next_try(self, finished_run: TaskRunner, kind: str) -> None:
        assert finished_run.outcome(f"not_sent_{kind}") == ("success", 2)
        assert len(finished_run.inbox_items("email", address(f"not_sent_{kind}"))) == 1

    @pytest.mark.parametrize("kind", UNKNOWN)
    def test_unknown_request_is_not_sent_again(self, finished_run: TaskRunner, kind: str) -> None:
        assert finished_run.outcome(f"unknown_{kind}") == ("failed", 1)
        assert len(finished_run.inbox_items("email", address(f"unknown_{kind}"))) == 1

    @pytest.mark.parametrize("kind", PERMANENT)
    def test_permanent_error_fails_without_a_retry(self, finished_run: TaskRunner, kind: str) -> None:
        assert finished_run.outcome(f"permanent_{kind}") == ("failed", 1)
        assert PERMANENT[kind][2] in finished_run.error(f"permanent_{kind}")
        assert finished_run.inbox_items("email", address(f"permanent_{kind}")) == []

    @pytest.mark.parametrize("kind", BAD_RECIPIENTS)
    def test_invalid_recipients_fail_without_a_retry_and_nothing_is_sent(
        self, finished_run: TaskRunner, kind: str
    ) -> None:
        assert finished_run.outcome(f"bad_{kind}") == ("failed", 1)
        assert BAD_RECIPIENTS[kind][1] in finished_run.error(f"bad_{kind}")
        assert finished_run.inbox_items("email", address("good_one")) == []


class TestConnectionLimits:
    def test_recipients_not_allowed_are_left_out_and_counted(self, finished_run: TaskRunner) -> None:
        result = finished_run.xcom("staging_some")
        assert (result["recipients"], result["skipped_not_allowed"]) == (2, 1)
        assert finished_run.inbox_items("email", address("outsider")) == []
        assert len(finished_run.inbox_items("email", "Any@inside.example.com")) == 1

    def test_task_without_allowed_recipients_is_skipped(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("staging_nobody") == ("skipped", 1)

    def test_recipients_above_the_limit_of_one_request_fail_and_nothing_is_sent(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("too_many") == ("failed", 1)
        assert "recipients_per_request is 2" in finished_run.error("too_many")
        assert "with SmsCampaignOperator or EmailCampaignOperator" in finished_run.error("too_many")
        assert finished_run.inbox_items("email", address("m1")) == []
