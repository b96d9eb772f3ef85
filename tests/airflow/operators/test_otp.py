"""The passcode operators as real task instances: a code is sent once and shown nowhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from airflow.sdk import task

from cpaas_provider.operators import SendSmsOperator
from cpaas_provider.operators.otp import (
    FindOtpsOperator,
    GetOtpOperator,
    RequestOtpOperator,
    RevokeOtpOperator,
    VerifyOtpOperator,
)
from tests.airflow.harness.task_runner import TaskRunner, balance, busy, digits, fault, open_task_runner, phone, setting
from tests.sandbox import Sandbox
from tests.unit.docs.results import documented_keys

RECORD = {"id", "status", "status_desc", "outcome", "created_datetime"}
UNKNOWN = {
    "cut_after": [fault("request_otp", "cut_after")],
    "error_500_after": [fault("request_otp", "error_500_after")],
    "broken_json": [fault("request_otp", "broken_json")],
    "missing_created": [fault("request_otp", "missing_field", field="created_datetime")],
}
PERMANENT = {
    "wrong_key": ([], {"cpaas_conn_id": "cpaas_wrong_key"}, "API key"),
    "no_balance": ([balance(1)], {}, "Top up the account"),
    "bad_number": ([], {"recipient": "0803"}, "recipient"),
    "long_code": ([], {"length": "{{ 9 }}"}, "length"),
    "long_life": ([], {"expires_in": "{{ 61 }}"}, "expires_in"),
    "no_life": ([], {"expires_in": "{{ none }}"}, "expires_in"),
    "channel": ([], {"channel": "{{ 'pigeon' }}"}, "channel"),
    "error_under_200": ([fault("request_otp", "error_under_200")], {}, "rejected"),
    "empty_code": ([], {"token": "{{ none }}"}, "token is the word 'None' after rendering"),
}
# The status of a passcode after one check with its right code, by what happens to that check. A second check meets
# nothing: it would verify a passcode that is SENT, and be rejected for one that is VERIFIED.
UNKNOWN_CHECKS = {"cut_before": "SENT", "cut_after": "VERIFIED", "broken_json": "VERIFIED"}
# What a token may render to where there is none; nothing is asked then, because asking uses up an attempt.
NO_CODES = {"none": None, "rendered_none": "{{ none }}", "empty": "", "blank": " "}


def id_of(requested: str) -> str:
    return f"{{{{ ti.xcom_pull('{requested}')['id'] }}}}"


@pytest.fixture(scope="module")
def finished_run(airflow_db: object, sandbox_process: Sandbox) -> Iterator[TaskRunner]:
    with open_task_runner(sandbox_process, cpaas_staging={"allowed_recipients": phone("allowed")}) as task_runner:

        def code_of(case: str) -> str:
            return str(sandbox_process.inbox("otp", recipient=digits(case))["items"][0]["code"])

        def request(case: str, *trouble: tuple, **given: object) -> RequestOtpOperator:
            arguments = {"recipient": phone(case)} | given
            return RequestOtpOperator(task_id=task_runner.prepare(case, *trouble), **arguments)

        def verify(case: str, requested: str, *trouble: tuple, **given: object) -> None:
            arguments = {"otp_id": id_of(requested), "token": f"{{{{ code_of('{requested}') }}}}"} | given
            request(requested) >> VerifyOtpOperator(task_id=task_runner.prepare(case, *trouble), **arguments)

        macros = {"code_of": code_of}
        with task_runner.dag(
            "otp", params={"to": phone("by_params"), "code": "135790"}, user_defined_macros=macros
        ) as dag:
            request(
                "rendered",
                recipient="{{ params.to }}",
                length="{{ 6 }}",
                expires_in="{{ 20 }}",
                token="{{ params.code }}",
                channel="{{ 'whatsapp' }}",
                cpaas_conn_id="cpaas_{{ 'default' }}",
            )
            request("plain")
            request("life_with_point", expires_in="5.0")

            @task
            def customer() -> str:
                return phone("customer")

            request("from_task", recipient=customer())
            RequestOtpOperator.partial(task_id="mapped", length=8).expand(recipient=[phone("mapped_0"), "nobody"])
            request("busy_at_first", busy("request_otp"))
            for name, trouble in UNKNOWN.items():
                request(f"unknown_{name}", *trouble)
                request(f"unproved_{name}", *trouble, fault("find_otps", "unauthorized"))
            for name, (trouble, arguments, _) in PERMANENT.items():
                request(f"permanent_{name}", *trouble, **arguments)
            request("allowed", cpaas_conn_id="cpaas_staging")
            request("outsider", cpaas_conn_id="cpaas_staging")
            request("outsider_without_number", recipient="nobody", cpaas_conn_id="cpaas_staging")

            verify("verify", "r1")
            verify("verify_strict", "r2", require_verified_status=True)
            verify("verify_wrong", "r3", token="{{ '0000' if code_of('r3') != '0000' else '1111' }}")
            verify("verify_wrong_told", "r4", token="not the code", fail_if_not_verified=False)
            verify("verify_sent_mode", "r5", setting(otp_status_mode="sent"))
            verify("verify_sent_mode_strict", "r6", setting(otp_status_mode="sent"), require_verified_status=True)
            verify(
                "verify_sent_mode_told", "r7", setting(otp_status_mode="sent"),
                require_verified_status=True, fail_if_not_verified=False,
            )  # fmt: skip
            verify("verify_busy_at_first", "r8", busy("verify_otp"))
            verify("verify_number", "r9", token=4711)
            for name in UNKNOWN_CHECKS:
                verify(f"unknown_check_{name}", f"c_{name}", fault("verify_otp", name, times=1))
                verify(
                    f"unknown_check_told_{name}", f"t_{name}", fault("verify_otp", name, times=1),
                    fail_if_not_verified=False,
                )  # fmt: skip
            for name, code in NO_CODES.items():
                verify(f"verify_{name}", f"r_{name}", token=code)
            VerifyOtpOperator(task_id="verify_nobody", otp_id="no_such_passcode", token="4711")

            dag.get_task("verify") >> GetOtpOperator(task_id="get", otp_id=id_of("r1"))
            GetOtpOperator(task_id="get_nobody", otp_id="no_such_passcode")
            broken = task_runner.prepare("get_broken_at_first", fault("get_otp", "broken_json", times=5))
            dag.get_task("plain") >> [
                GetOtpOperator(task_id=broken, otp_id=id_of("plain")),
                FindOtpsOperator(task_id="find", recipient=f"+{digits('plain')}"),
            ]
            FindOtpsOperator(task_id="find_nothing", recipient="{{ params.to[:-1] }}1")
            FindOtpsOperator(task_id="find_bad_number", recipient="0803")

            request("to_revoke") >> RevokeOtpOperator(task_id="revoke", otp_id=id_of("to_revoke"))
            cut = task_runner.prepare("revoke_cut", fault("revoke_otp", "cut_after", times=1))
            request("to_revoke_cut") >> RevokeOtpOperator(task_id=cut, otp_id=id_of("to_revoke_cut"))
            RevokeOtpOperator(task_id="revoke_nobody", otp_id="no_such_passcode")
            RevokeOtpOperator(task_id="revoke_skipping", otp_id="no_such_passcode", skip_if_missing=True)
        yield task_runner.run_dag(dag)


class TestRequest:
    def test_templated_fields_reach_the_service_rendered(self, finished_run: TaskRunner) -> None:
        (passcode,) = finished_run.inbox_items("otp", digits("by_params"))
        assert (passcode["code"], passcode["channel"]) == ("135790", "whatsapp")
        assert "expires in 20 minutes" in passcode["text"]

    def test_result_is_the_record_and_its_end_without_code_and_number(self, finished_run: TaskRunner) -> None:
        (passcode,) = finished_run.inbox_items("otp", digits("by_params"))
        result = finished_run.xcom("rendered")
        assert set(result) == RECORD | {"expires_at", "unknown_recipients", "unknown_references"}
        assert set(result) == documented_keys(RequestOtpOperator)
        assert (result["id"], result["status_desc"], result["outcome"]) == (passcode["id"], "SENT", "pending")
        assert result["expires_at"] == passcode["expires_datetime"]

    def test_passcode_expires_after_15_minutes_by_default(self, finished_run: TaskRunner) -> None:
        (passcode,) = finished_run.inbox_items("otp", digits("plain"))
        assert finished_run.xcom("plain")["expires_at"] == passcode["expires_datetime"]
        assert len(passcode["code"]) == 4

    def test_expiry_of_whole_minutes_in_any_form_is_accepted_and_the_code_sent_once(
        self, finished_run: TaskRunner
    ) -> None:
        assert finished_run.outcome("life_with_point") == ("success", 1)
        (passcode,) = finished_run.inbox_items("otp", digits("life_with_point"))
        assert finished_run.xcom("life_with_point")["expires_at"] == passcode["expires_datetime"]

    def test_rendered_tab_shows_neither_code_nor_number(self, finished_run: TaskRunner) -> None:
        shown = finished_run.rendered("rendered")
        assert shown["token"] == "***"
        assert shown["recipient"] == f"0803****{phone('by_params')[-3:]}"
        assert (shown["length"], shown["expires_in"], shown["channel"]) == ("6", "20", "whatsapp")

    def test_recipient_comes_from_an_upstream_task(self, finished_run: TaskRunner) -> None:
        assert len(finished_run.inbox_items("otp", digits("customer"))) == 1

    def test_mapped_instances_request_their_own_and_a_bad_one_fails_alone(self, finished_run: TaskRunner) -> None:
        (passcode,) = finished_run.inbox_items("otp", digits("mapped_0"))
        assert len(passcode["code"]) == 8
        assert [finished_run.outcome("mapped", index) for index in (0, 1)] == [("success", 1), ("failed", 1)]

    def test_request_not_sent_is_sent_by_the_next_try(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("busy_at_first") == ("success", 2)
        assert len(finished_run.inbox_items("otp", digits("busy_at_first"))) == 1

    @pytest.mark.parametrize("kind", UNKNOWN)
    def test_unknown_request_is_resolved_by_the_otp_records_and_not_resent(
        self, finished_run: TaskRunner, kind: str
    ) -> None:
        assert finished_run.outcome(f"unknown_{kind}") == ("success", 1)
        (passcode,) = finished_run.inbox_items("otp", digits(f"unknown_{kind}"))
        result = finished_run.xcom(f"unknown_{kind}")
        assert (result["id"], result["unknown_recipients"]) == (passcode["id"], 0)
        assert result["expires_at"] == passcode["expires_datetime"]

    @pytest.mark.parametrize("kind", UNKNOWN)
    def test_unknown_request_fails_if_the_otp_records_cannot_be_read(self, finished_run: TaskRunner, kind: str) -> None:
        assert finished_run.outcome(f"unproved_{kind}") == ("failed", 1)
        assert len(finished_run.inbox_items("otp", digits(f"unproved_{kind}"))) == 1

    @pytest.mark.parametrize("kind", PERMANENT)
    def test_permanent_error_fails_without_a_retry(self, finished_run: TaskRunner, kind: str) -> None:
        assert finished_run.outcome(f"permanent_{kind}") == ("failed", 1)
        assert PERMANENT[kind][2] in finished_run.error(f"permanent_{kind}")
        assert finished_run.inbox_items("otp", digits(f"permanent_{kind}")) == []

    def test_only_allowed_recipients_get_a_code(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("allowed") == ("success", 1)
        assert finished_run.outcome("outsider") == ("skipped", 1)
        assert finished_run.outcome("outsider_without_number") == ("failed", 1)
        assert finished_run.inbox_items("otp", digits("outsider")) == []


class TestVerify:
    @pytest.mark.parametrize("case", ["verify", "verify_strict"])
    def test_right_code_is_verified(self, finished_run: TaskRunner, case: str) -> None:
        result = finished_run.xcom(case)
        assert set(result) == documented_keys(VerifyOtpOperator) == RECORD | {"verified"}
        assert (result["verified"], result["status_desc"], result["outcome"]) == (True, "VERIFIED", "verified")

    def test_wrong_code_fails_at_once_and_uses_up_one_attempt(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("verify_wrong") == ("failed", 1)
        assert "The code is wrong" in finished_run.error("verify_wrong")
        (passcode,) = finished_run.inbox_items("otp", digits("r3"))
        assert passcode["attempts"] == 1

    def test_wrong_code_is_the_result_on_request(self, finished_run: TaskRunner) -> None:
        (passcode,) = finished_run.inbox_items("otp", digits("r4"))
        assert finished_run.xcom("verify_wrong_told") == {"id": passcode["id"], "verified": False}

    def test_status_sent_is_verified_by_default(self, finished_run: TaskRunner) -> None:
        result = finished_run.xcom("verify_sent_mode")
        assert (result["verified"], result["status_desc"]) == (True, "SENT")

    def test_status_sent_is_not_verified_with_require_verified_status(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("verify_sent_mode_strict") == ("failed", 1)
        assert "not verified: its status is SENT" in finished_run.error("verify_sent_mode_strict")
        assert finished_run.xcom("verify_sent_mode_told")["verified"] is False

    def test_check_not_made_is_made_by_the_next_try(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("verify_busy_at_first") == ("success", 2)

    @pytest.mark.parametrize(("case", "requested"), [("unknown_check", "c"), ("unknown_check_told", "t")])
    @pytest.mark.parametrize("kind", UNKNOWN_CHECKS)
    def test_code_with_an_unknown_check_is_checked_once_and_fails(
        self, finished_run: TaskRunner, kind: str, case: str, requested: str
    ) -> None:
        assert finished_run.outcome(f"{case}_{kind}") == ("failed", 1)
        assert "unknown" in finished_run.error(f"{case}_{kind}")
        (passcode,) = finished_run.inbox_items("otp", digits(f"{requested}_{kind}"))
        assert (passcode["status_desc"], passcode["attempts"]) == (UNKNOWN_CHECKS[kind], 0)

    def test_code_may_be_a_number(self, finished_run: TaskRunner) -> None:
        assert "The code is wrong" in finished_run.error("verify_number")

    @pytest.mark.parametrize("kind", NO_CODES)
    def test_missing_code_fails_without_using_an_attempt(self, finished_run: TaskRunner, kind: str) -> None:
        assert finished_run.outcome(f"verify_{kind}") == ("failed", 1)
        assert "after rendering. Nothing was sent" in finished_run.error(f"verify_{kind}")
        (passcode,) = finished_run.inbox_items("otp", digits(f"r_{kind}"))
        assert passcode["attempts"] == 0

    def test_missing_passcode_fails_without_a_retry(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("verify_nobody") == ("failed", 1)

    def test_rendered_tab_hides_the_code_whole(self, finished_run: TaskRunner) -> None:
        assert finished_run.rendered("verify")["token"] == "***"


class TestGetAndFind:
    def test_record_is_read_by_its_id(self, finished_run: TaskRunner) -> None:
        result = finished_run.xcom("get")
        assert set(result) == documented_keys(GetOtpOperator) == RECORD
        assert result["outcome"] == "verified"

    def test_reading_again_is_harmless(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("get_broken_at_first") == ("success", 2)

    def test_missing_passcode_fails_without_a_retry(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("get_nobody") == ("failed", 1)

    def test_all_records_of_a_number_are_found_without_the_number(self, finished_run: TaskRunner) -> None:
        (record,) = finished_run.xcom("find")
        assert set(record) == RECORD
        assert record["id"] == finished_run.xcom("plain")["id"]

    def test_number_without_records_returns_an_empty_list(self, finished_run: TaskRunner) -> None:
        assert finished_run.xcom("find_nothing") == []

    def test_bad_number_fails_at_once(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("find_bad_number") == ("failed", 1)


class TestRevoke:
    @pytest.mark.parametrize("case", ["revoke", "revoke_cut"])
    def test_passcode_is_useless_afterwards(self, finished_run: TaskRunner, case: str) -> None:
        (passcode,) = finished_run.inbox_items("otp", digits(f"to_{case}"))
        assert passcode["status_desc"] == "REVOKED"
        assert finished_run.xcom(case) == {"id": passcode["id"], "revoked": True}
        assert documented_keys(RevokeOtpOperator) == {"id", "revoked"}

    def test_missing_passcode_fails_without_a_retry(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("revoke_nobody") == ("failed", 1)

    def test_missing_passcode_skips_on_request(self, finished_run: TaskRunner) -> None:
        assert finished_run.outcome("revoke_skipping") == ("skipped", 1)


def test_operators_without_delivery_reports_have_no_delivery_link() -> None:
    assert RequestOtpOperator(task_id="otp", recipient="08031234567").operator_extra_links == ()
    assert RequestOtpOperator.operator_extra_links == ()
    (link,) = SendSmsOperator(task_id="sms", recipients="08031234567", content="Hello").operator_extra_links
    assert link.name == "Delivery"
