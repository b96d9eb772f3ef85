"""A DAG file with one DAG."""

from __future__ import annotations

from airflow.sdk import dag

from cpaas_provider.operators.sms import SendSmsOperator


@dag(schedule=None, params={"text": "Hello"})
def small():
    SendSmsOperator(
        task_id="send", cpaas_conn_id="shop", recipients="0803 123 4567", sender_id="Shop", content="{{ params.text }}"
    )


small()
