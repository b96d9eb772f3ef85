"""SendSmsOperator as real task instances."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from airflow.sdk import task

from cpaas_provider.operators.sms import SendSmsOperator
from tests.airflow.harness.task_runner import TaskRunner, balance, busy, digits, fault, open_task_runner, phone
from tests.sandbox import Sandbox
from tests.unit.docs.results import documented_keys

# How a first try may fail although surely nothing was sent.
NOT_SENT = {
    "rate_limit": [busy("send_sms")],
    "rate_limit_by_date": [busy("send_sms", format="http-date")],
    "unavailable": [busy("send_sms", "unavailable")],
}
# How an answer may fail to come although the message was sent.
UNKNOWN = {
    "cut_after": [fault("send_sms", "cut_after")],
    "error_500_after": [fault("send_sms", "error_500_after")],
    "bad_gateway_after": [fault("send_sms", "bad_gateway_after")],
    "broken_json": [fault("send_sms", "broken_json")],
    "missing_id": [fault("send_sms", "missing_field", field="id")],
    "stall_body": [fault("send_sms", "stall_body", seconds=5)],
}
# How a message may be refused, by the service or before it leaves: what to set up, the arguments, what the error says.
PERMANENT = {
    "wrong_key": ([], {"cpaas_conn_id": "cpaas_wrong_key"}, "API key"),
    "no_balance": ([balance(1)], {}, "Top up the account"),
    "error_under_200": ([fault("send_sms", "error_under_200")], {}, "rejected"),
    "redirect": ([fault("send_sms", "redirect")], {}, "HTTP 307"),
    "unknown_template": ([], {"content": None, "template_id": "tpl_none"}, "rejected"),
    "no_text": ([], {"content": "{{ '' }}"}, "content is empty after rendering"),
    "missing_text": ([], {"content": "{{ none }}"}, "content is the word 'None'"),
    "missing_sender": ([], {"sender_id": "{{ none }}"}, "sender_id is the word 'None'"),
    "line_break_in_sender": ([], {"sender_id": "Sh\nop"}, "sender_id must not contain line breaks"),
    "zero_width_sender": ([], {"sender_id": "Sh\u200bop"}, "sender_id must not contain zero-width characters or emoji"),
    "emoji_in_sender": ([], {"sender_id": "Shop\U0001f600"}, "sender_id must not contain zero-width characters"),
    "empty_sender": ([], {"sender_id": "{{ '' }}"}, "sender_id is empty after rendering"),
    "missing_reference": ([], {"external_ref": "{{ none }}"}, "external_ref is the word 'None'"),
    "placeholder_alone": ([], {"content": "your code is {code}"}, "no value of a placeholder (code)"),
    "placeholder_in_other_marks": (
        [],
        {"content": "your code is %code%", "cpaas_conn_id": "cpaas_marks"},
        "no value of a placeholder (code)",
    ),
    "no_entries": ([], {"content": "your code is {code}", "personalisation": []}, "no value of a placeholder (code)"),
    **{
        f"entry_with_{name}": (
            [],
            {
                "content": "your code is {code}",
                "personalisation": [{"to": phone(f"permanent_entry_with_{name}"), "substitutions": {"code": value}}],
            },
            "no value of a placeholder (code)",
        )
        for name, value in {"none": None, "blank": " ", "nan": float("nan"), "list": ["1"], "word": "None"}.items()
    },
    "template_without_value": (
        [],
        {
            "content": None,
            "template_id": "tpl_welcome",
            "personalisation": [
                {"to": phone("permanent_template_without_value"), "substitutions": {"name": None, "company": "Shoes"}}
            ],
        },
        "of a placeholder (name)",
    ),
    "long_sender": ([], {"sender_id": "FarTooLongASender"}, "sender_id"),
    "no_sender": ([], {"cpaas_conn_id": "cpaas_no_sender"}, "No sender ID"),
    "bad_callback": ([], {"callback": "not-a-url"}, "callback"),
    "broken_template": ([], {"content": "{{ params.nothing.at.all }}"}, "template of content cannot be rendered"),
    "text_as_number": ([], {"content": 12345}, "content"),
    "personalised_by_text": ([], {"personalisation": "[{'to': 1}]"}, "personalisation"),
    "personalised_by_words": ([], {"personalisation": ["somebody"]}, "personalisation"),
    "personalised_stranger": (
        [],
        {"personalisation": [{"to": phone("stranger"), "substitutions": {}}]},
        "not in recipients",
    ),
}
BAD_RECIPIENTS = {
    "too_short": (["0803"], "recipient 1 is not a phone number"),
    "spreadsheet": (["2.348E+12"], "lost its last digits"),
    "second_of_two": ([phone("good_one"), "nonsense"], "recipient 2 contains letters"),
    "empty_list": ([], "recipients is empty"),
    "empty_text": ("", "recipients is empty"),
}


@pytest.fixture(scope="module")
def finished_run(airflow_db: object, sandbox_process: Sandbox) -> Iterator[TaskRunner]:
    staging = {"allowed_recipients": f"{phone('allowed')}, {phone('also_allowed')}"}
    with open_task_runner(
        sandbox_process,
        cpaas_no_sender={"sender_id": ""},
        cpaas_staging=staging,
        cpaas_small={"recipients_per_request": 2},
        cpaas_marks={"placeholder_format": "%name%"},
    ) as task_runner:

        def sms(case: str, *trouble: tuple, **given: object) -> SendSmsOperator:
            arguments = {"recipients": [phone(case)], "content": "Hello"} | given
            return SendSmsOperator(task_id=task_runner.prepare(case, *trouble), **arguments)

        with task_runner.dag(
            "sms", params={"shop": "Shoes", "phone": phone("by_params")}, user_defined_macros={"flaky": flaky}
        ) as dag:
            sms(
                "rendered",
                recipients="{{ params.phone }}",
                content="From {{ params.shop }} in {{ dag.dag_id }}",
                sender_id="{{ params.shop }}",
                personalisation=[{"to": "{{ params.phone }}", "substitutions": {"shop": "{{ params.shop }}"}}],
                external_ref="ref-{{ dag.dag_id }}",
                callback="http://127.0.0.1:9/{{ params.shop }}",
                cpaas_conn_id="cpaas_{{ 'default' }}",
            )
            names = {"name": "Ada", "company": "{{ params.shop }}"}
            sms(
                "templated",
                content=None,
                template_id="tpl_{{ 'welcome' }}",
                personalisation=[{"to": phone("templated"), "substitutions": names}],
            )

            sms("marks", content="\ufeffHel\u200blo\ufeff" + "x" * 150)
            sms("persian", content="می\u200cروم\ufeff")
            sms("typography", content="It\u2019s \u201cfine\u201d" + "x" * 100)
            sms("gsm7", content="It\u2019s \u201cfine\u201d" + "x" * 100, encoding="gsm7")
            sms("not_gsm7", content="It\u2019s ọjọ́", encoding="gsm7")
            sms(
                "gsm7_values",
                content="It\u2019s {name}",
                encoding="gsm7",
                personalisation=[{"to": phone("gsm7_values"), "substitutions": {"name": "Ada\u2019s\u200b"}}],
            )

            @task
            def people() -> list[str]:
                return [phone("from_task_1"), phone("from_task_2")]

            @task
            def text_of(case: str) -> str:
                return f"For {case}"

            sms("from_task", recipients=people(), content=text_of("from_task"))
            sms("list_and_repeats", recipients=[phone("a"), f"+{digits('a')}", f" {phone('b')} "])
            sms("comma_separated", recipients=f"{phone('c')}, {phone('d')}")
            sms("tracked", is_trackable=True, channel="whatsapp")
            sms("two_pages", content="x" * 161)
            SendSmsOperator.partial(task_id="mapped", content="Number {{ ti.map_index }}").expand(
                recipients=[[phone("mapped_0")], [phone("mapped_1")], ["nobody"]]
            )
            SendSmsOperator.partial(task_id="mapped_kwargs").expand_kwargs(
                [
                    {"recipients": [phone("kwargs_0")], "content": "To {{ run_id[:6] }}"},
                    {"recipients": [phone("kwargs_1")], "content": "Zwei"},
                ]
            )
            number_of = task(phone).override(task_id="number_of")
            sms("from_mapped", recipients=number_of.expand(case=["upstream_0", "upstream_1"]))
            sms("flaky_template", content="{{ flaky(ti.try_number) }}")

            for name, trouble in NOT_SENT.items():
                sms(f"not_sent_{name}", *trouble)
            sms("refused_at_first", cpaas_conn_id="cpaas_{{ 'refused' if ti.try_number == 1 else 'default' }}")
            sms("always_busy", fault("send_sms", "rate_limit", retry_after=0))
            for name, trouble in UNKNOWN.items():
                sms(f"unknown_{name}", *trouble)
            for name, (trouble, arguments, _) in PERMANENT.items():
                sms(f"permanent_{name}", *trouble, **arguments)
            for name, (recipients, _) in BAD_RECIPIENTS.items():
                sms(f"bad_{name}", recipients=recipients)

            sms(
                "staging_some",
                recipients=[phone("allowed"), phone("outsider"), phone("also_allowed")],
                content="Dear {name}",
                personalisation=[
                    {"to": phone(one), "substitutions": {"name": one}}
                    for one in ("allowed", "outsider", "also_allowed")
                ],
                cpaas_conn_id="cpaas_staging",
            )
            sms("staging_nobody", cpaas_conn_id="cpaas_staging")
            sms("just_enough", recipients=[phone("e1"), phone("e2"), phone("e2")], cpaas_conn_id="cpaas_small")
            sms("too_many", recipients=[phone("m1"), phone("m2"), phone("m3")], cpaas_conn_id="cpaas_small")
            sms("own_sender", sender_id="Mine")
            sms(
                "literal_marks",
                content="Use {code}",
                personalisation=[{"to": phone("literal_marks"), "substitutions": {"code": "{code}"}}],
            )
            sms(
                "other_marks",
                content="Use {code}",
                cpaas_conn_id="cpaas_marks",
            )
        yield task_runner.run_dag(dag)


def flaky(try_number: int) -> str:
    """A macro that reads something which is not there at first."""
    if try_number == 1:
        raise OSError(f"no variable for {phone('flaky_template')}")
    return "At last"


class TestRendering:
    def test_templated_fields_reach_the_service_rendered(self, finished_run: TaskRunner) -> None:
        (message,) = finished_run.inbox_items("sms", digits("by_params"))
        assert message["text"] == "From Shoes in sms"
        assert message["sender_id"] == "Shoes"
        assert message["external_ref"] == "ref-sms"
        assert message["callback"] == "http://127.0.0.1:9/Shoes"

    def test_template_of_the_service_is_filled_for_each_recipient(self, finished_run: TaskRunner) -> None:
        (message,) = finished_run.inbox_items("sms", digits("templated"))
        assert message["text"] == "Hello Ada, welcome to Shoes!"

    def test_recipients_and_text_come_from_upstream_tasks(self, finished_run: TaskRunner) -> None:
        for recipient in ("from_task_1", "from_task_2"):
            (message,) = finished_run.inbox_items("sms", digits(recipient))
            assert message["text"] == "For from_task"
        assert finished_run.xcom("from_task")["recipients"] == 2

    def test_rendered_tab_shows_summaries_of_what_is_private(self, finished_run: TaskRunner) -> None:
        shown = finished_run.rendered("rendered")
        assert shown["recipients"] == f"1 recipient: 0803****{phone('by_params')[-3:]}"
        assert shown["content"] == "<17 characters>"
        assert shown["personalisation"] == "<1 entries>"
        assert shown["callback"] == "http://127.0.0.1/***"
        assert shown["external_ref"] == "ref-sms"
        assert shown["sender_id"] == "Shoes"


class TestResult:
    def test_result_has_ids_counts_and_cost(self, finished_run: TaskRunner) -> None:
        (message,) = finished_run.inbox_items("sms", digits("two_pages"))
        result = finished_run.xcom("two_pages")
        assert set(result) == documented_keys(SendSmsOperator) == {
            "id", "recipients", "charge", "balance", "encoding", "pages", "created_datetime", "skipped_not_allowed",
            "skipped_suppressed", "skipped_frequency_cap",
            "references", "delivery_reports", "unknown_recipients", "unknown_references",
        }  # fmt: skip
        assert result["id"] == message["message_id"]
        assert (result["recipients"], result["pages"], result["encoding"]) == (1, 2, "GSM-7")
        assert result["charge"] == 8
        assert result["skipped_not_allowed"] == 0

    def test_log_tells_pages_and_recipients_before_the_send(self, finished_run: TaskRunner) -> None:
        assert "Sending GSM-7 SMS, estimated pages: 2 each, recipients: 1." in finished_run.log("two_pages")

    def test_recipient_named_twice_gets_one_message(self, finished_run: TaskRunner) -> None:
        assert finished_run.xcom("list_and_repeats")["recipients"] == 2
        assert len(finished_run.inbox_items("sms", digits("a"))) == 1

    def test_recipients_may_be_comma_separated(self, finished_run: TaskRunner) -> None:
        assert finished_run.xcom("comma_separated")["recipients"] == 2

    @pytest.mark.parametrize("case", ["literal_marks", "other_marks"])
    def test_marks_that_are_no_placeholder_are_read_as_they_are(self, finished_run: TaskRunner, case: str) -> None:
        (message,) = finished_run.inbox_items("sms", digits(case))
        assert message["text"] == "Use {code}"

    def test_channel_and_tracking_are_passed_on(self, finished_run: TaskRunner) -> None:
        (message,) = finished_run.inbox_items("sms", digits("tracked"))
        assert (message["channel"], message["is_trackable"]) == ("whatsapp", True)


class TestMapping:
    def test_mapped_instances_send_their_own_message(self, finished_run: TaskRunner) -> None:
        for index in (0, 1):
            (message,) = finished_run.inbox_items("sms", digits(f"mapped_{index}"))
            assert message["text"] == f"Number {index}"
            assert finished_run.rendered("mapped", index)["content"] == "<8 characters>"

    def test_invalid_mapped_instance_fails_alone(self, finished_run: TaskRunner) -> None:
        assert [finished_run.outcome("mapped", index) for index in (0, 1, 2)] == [
            ("success", 1),
            ("success", 1),
            ("failed", 1),
        ]

    def test_all_arguments_may_be_mapped(self, finished_run: TaskRunner) -> None:
        (message,) = finished_run.inbox_items("sms", digits("kwargs_0"))
        assert message["text"] == "To manual"
        (message,) = finished_run.inbox_items("sms", digits("kwargs_1"))
        assert message["text"] == "Zwei"
        assert "080" in finished_run.rendered("mapped_kwargs", 0)["recipients"]
        assert phone("kwargs_0") not in str(finished_run.rendered("mapped_kwargs", 0))

    def test_results_of_a_mapped_task_may_be_the_recipients(self, finished_run: TaskRunner) -> None:
        assert finished_run.xcom("from_mapped")["recipients"] == 2
        assert len(finished_run.inbox_items("sms", digits("upstream_1"))) == 1
        assert finished_run.rendered("from_mapped")["recipients"].startswith("2 recipients: 0803****")


class TestRetries:
    @pytest.mark.parametrize("kind", NOT_SENT)
    def test_request_not_sent_is_sent_by_the_next_try(self, finished_run: TaskRunner, kind: str) -> None:
        assert finished_run.outcome(f"not_sent_{kind}") == ("success", 2)
        assert len(finished_run.inbox_items("sms", digits(f"not_sent_{kind}"))) == 1

    def test_refused_connection_is_retried(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("refused_at_first") == ("success", 2)
        assert "Nothing was sent" in finished_run.error("refused_at_first")

    def test_template_that_could_not_read_something_is_rendered_again(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("flaky_template") == ("success", 2)
        assert (
            finished_run.error("flaky_template")
            == "The template of content cannot be rendered (OSError). Nothing was sent."
        )
        assert [message["text"] for message in finished_run.inbox_items("sms", digits("flaky_template"))] == ["At last"]

    def test_task_fails_after_its_last_retry(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("always_busy") == ("failed", 4)
        assert finished_run.inbox_items("sms", digits("always_busy")) == []

    @pytest.mark.parametrize("kind", UNKNOWN)
    def test_unknown_request_is_not_sent_again(self, finished_run: TaskRunner, kind: str) -> None:
        assert finished_run.outcome(f"unknown_{kind}") == ("failed", 1)
        assert len(finished_run.inbox_items("sms", digits(f"unknown_{kind}"))) == 1
        assert "Outcome unknown: request" in finished_run.error(f"unknown_{kind}")

    @pytest.mark.parametrize("kind", PERMANENT)
    def test_permanent_error_fails_without_a_retry(self, finished_run: TaskRunner, kind: str) -> None:
        assert finished_run.outcome(f"permanent_{kind}") == ("failed", 1)
        assert PERMANENT[kind][2] in finished_run.error(f"permanent_{kind}")
        assert finished_run.inbox_items("sms", digits(f"permanent_{kind}")) == []

    @pytest.mark.parametrize("kind", BAD_RECIPIENTS)
    def test_invalid_recipients_fail_without_a_retry_and_nothing_is_sent(
        self, finished_run: TaskRunner, kind: str
    ) -> None:
        assert finished_run.outcome(f"bad_{kind}") == ("failed", 1)
        assert BAD_RECIPIENTS[kind][1] in finished_run.error(f"bad_{kind}")
        assert "Nothing was sent" in finished_run.error(f"bad_{kind}")
        assert finished_run.inbox_items("sms", digits("good_one")) == []


class TestConnectionLimits:
    def test_recipients_not_allowed_are_left_out_and_counted(self, finished_run: TaskRunner) -> None:
        result = finished_run.xcom("staging_some")
        assert (result["recipients"], result["skipped_not_allowed"]) == (2, 1)
        assert finished_run.inbox_items("sms", digits("outsider")) == []
        (message,) = finished_run.inbox_items("sms", digits("allowed"))
        assert message["text"] == "Dear allowed"

    def test_task_without_allowed_recipients_is_skipped(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("staging_nobody") == ("skipped", 1)
        assert "allowed_recipients" in finished_run.log("staging_nobody")
        assert finished_run.inbox_items("sms", digits("staging_nobody")) == []

    def test_recipients_up_to_the_limit_of_one_request_are_sent_to(self, finished_run: TaskRunner) -> None:
        assert finished_run.xcom("just_enough")["recipients"] == 2

    def test_recipients_above_the_limit_of_one_request_fail_and_nothing_is_sent(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("too_many") == ("failed", 1)
        assert "3 recipients are too many for one request" in finished_run.error("too_many")
        assert "with SmsCampaignOperator or EmailCampaignOperator" in finished_run.error("too_many")
        assert [finished_run.inbox_items("sms", digits(one)) for one in ("m1", "m2", "m3")] == [[], [], []]

    @pytest.mark.parametrize(("case", "sender"), [("two_pages", "Shop"), ("own_sender", "Mine")])
    def test_sender_of_the_task_overrides_that_of_the_connection(
        self, finished_run: TaskRunner, case: str, sender: str
    ) -> None:
        (message,) = finished_run.inbox_items("sms", digits(case))
        assert message["sender_id"] == sender


class TestTexts:
    def test_marks_without_a_meaning_are_not_sent(self, finished_run: TaskRunner) -> None:
        (message,) = finished_run.inbox_items("sms", digits("marks"))
        assert message["text"] == "Hello" + "x" * 150
        assert "Sending GSM-7 SMS, estimated pages: 1 each" in finished_run.log("marks")

    def test_joiner_of_a_script_is_sent(self, finished_run: TaskRunner) -> None:
        assert [message["text"] for message in finished_run.inbox_items("sms", digits("persian"))] == ["می\u200cروم"]

    def test_typography_is_sent_and_the_log_has_what_the_option_would_save(self, finished_run: TaskRunner) -> None:
        (message,) = finished_run.inbox_items("sms", digits("typography"))
        assert message["text"].startswith("It\u2019s \u201cfine\u201d")
        assert "encoding='gsm7' would save 1 page." in finished_run.log("typography")

    def test_option_replaces_typography(self, finished_run: TaskRunner) -> None:
        (message,) = finished_run.inbox_items("sms", digits("gsm7"))
        assert message["text"] == 'It\'s "fine"' + "x" * 100
        assert (finished_run.xcom("gsm7")["encoding"], finished_run.xcom("gsm7")["pages"]) == ("GSM-7", 1)
        assert "encoding='gsm7' saves 1 page." in finished_run.log("gsm7")

    def test_option_leaves_a_text_with_other_characters_and_the_log_has_their_number(
        self, finished_run: TaskRunner
    ) -> None:
        assert [message["text"] for message in finished_run.inbox_items("sms", digits("not_gsm7"))] == ["It\u2019s ọjọ́"]
        assert "encoding='gsm7' leaves 1 text in UCS-2, with up to 3 characters that have no form" in finished_run.log(
            "not_gsm7"
        )

    def test_option_replaces_typography_of_values(self, finished_run: TaskRunner) -> None:
        assert [message["text"] for message in finished_run.inbox_items("sms", digits("gsm7_values"))] == ["It's Ada's"]
