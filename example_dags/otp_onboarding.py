"""Onboard a customer: prove that the phone number is theirs, then send a welcome."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Param, dag

from cpaas_provider.operators.otp import RequestOtpOperator, RevokeOtpOperator
from cpaas_provider.operators.sms import SendSmsOperator
from cpaas_provider.sensors.otp import OtpStatusSensor

PARAMS = {
    "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
    "phone": Param(type="string", minLength=5, description="The number to prove, in any usual form."),
    "length": Param(6, type="integer", minimum=4, maximum=8, description="Digits of the code."),
    "expires_in": Param(10, type="integer", minimum=1, maximum=60, description="Minutes the code is valid."),
    "sender_id": Param("Example", type="string", maxLength=11, description="The sender that the phone shows."),
    "welcome": Param("Welcome! Your number is confirmed.", type="string", description="The text sent at the end."),
}

OTP_ID = "{{ ti.xcom_pull(task_ids='request_otp')['id'] }}"


@dag(
    schedule=None,
    catchup=False,
    params=PARAMS,
    default_args={"cpaas_conn_id": "{{ params.cpaas_conn_id }}", "retries": 2, "retry_delay": timedelta(seconds=10)},
    tags=["cpaas", "example"],
    doc_md="""
    ### OTP onboarding
    Sends a one-time passcode, waits until it is verified, and then sends a welcome. If the passcode expires, or too
    many wrong codes are tried, it is revoked and the run fails.

    **Where is the code verified?** In the app into which the customer types it, by `POST /otp/verify`, or in a DAG of
    yours, by `VerifyOtpOperator`. This DAG only waits, on the triggerer, where it holds no worker slot. Do not ask for
    a code in a human-in-the-loop task, because Airflow stores its input in the database.
    """,
)
def otp_onboarding():
    """Describe the order of the steps."""
    # [start howto_passcodes]
    request = RequestOtpOperator(
        task_id="request_otp",
        recipient="{{ params.phone }}",
        length="{{ params.length }}",
        expires_in="{{ params.expires_in }}",
    )
    wait = OtpStatusSensor(
        task_id="wait_until_verified",
        otp_id=OTP_ID,
        expires_in="{{ params.expires_in }}",
        deferrable=True,
        poke_interval=5,
    )
    welcome = SendSmsOperator(
        task_id="welcome",
        recipients="{{ params.phone }}",
        sender_id="{{ params.sender_id }}",
        content="{{ params.welcome }}",
    )
    revoke = RevokeOtpOperator(task_id="revoke_otp", otp_id=OTP_ID, skip_if_missing=True, trigger_rule="all_failed")
    request >> wait >> [welcome, revoke]
    # [end howto_passcodes]


otp_onboarding()
