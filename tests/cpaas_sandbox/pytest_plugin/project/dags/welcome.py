"""A DAG of a user: a passcode, a welcome where it is verified, and an apology where it is not."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag, task

from cpaas_provider.operators.otp import RequestOtpOperator
from cpaas_provider.operators.sms import SendSmsOperator
from cpaas_provider.sensors.delivery import DeliverySensor
from cpaas_provider.sensors.otp import OtpStatusSensor

NUMBER = "0803 123 4567"


@dag(schedule=None, params={"phone": NUMBER, "text": "Welcome!"})
def welcome():
    request = RequestOtpOperator(task_id="request", recipient="{{ params.phone }}")
    wait = OtpStatusSensor(
        task_id="wait", otp_id="{{ ti.xcom_pull(task_ids='request')['id'] }}", expires_in=10, deferrable=True
    )
    greet = SendSmsOperator(task_id="greet", recipients="{{ params.phone }}", content="{{ params.text }}")
    apologise = SendSmsOperator(
        task_id="apologise", recipients="{{ params.phone }}", content="Too late.", trigger_rule="all_failed"
    )
    request >> wait >> [greet, apologise]


@dag(schedule=None)
def tracked():
    send = SendSmsOperator(task_id="send", recipients=[NUMBER, "0803 000 0002"], content="Hello", is_trackable=True)
    DeliverySensor(task_id="delivered", send_result=send.output, min_delivered=1.0, deferrable=True, timeout=60)


@dag(schedule=None)
def told():
    SendSmsOperator(task_id="send", recipients=[NUMBER, "0803 000 0002"], content="Hello", is_trackable=True)


@dag(schedule=None, default_args={"retries": 3, "retry_delay": timedelta(hours=1)})
def retried():
    @task
    def flaky(ti=None):
        if ti.try_number < 3:
            raise ValueError(f"try {ti.try_number}")
        return ti.try_number

    flaky() >> SendSmsOperator(task_id="send", recipients=NUMBER, content="Hello")


@dag(schedule=None)
def mapped():
    @task
    def double(number):
        if number == 2:
            raise ValueError("no twos")
        return number * 2

    double.expand(number=[1, 2, 3])


@dag(schedule=None)
def waiting():
    @task.sensor(poke_interval=1, timeout=3600)
    def never():
        return False

    never()


welcome_dag, tracked_dag, told_dag = welcome(), tracked(), told()
retried_dag, mapped_dag, waiting_dag = retried(), mapped(), waiting()
