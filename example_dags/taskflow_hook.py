"""The hook in TaskFlow, sync and async, with retries that never send twice."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Param, dag, get_current_context, task

from cpaas_provider.hooks.retry_policy import CpaasRetryPolicy

PARAMS = {
    "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
    "phone": Param(type="string", minLength=5, description="The recipient's number, in any usual form."),
    "sender_id": Param("Example", type="string", maxLength=11, description="The sender that the phone shows."),
    "text": Param("Hello from Airflow!", type="string", description="The text."),
}


@dag(
    schedule=None,
    catchup=False,
    params=PARAMS,
    # Retries a request that was not sent, after the time the service asks for. Fails at once where it could not help.
    default_args={"retries": 3, "retry_delay": timedelta(seconds=10), "retry_policy": CpaasRetryPolicy()},
    tags=["cpaas", "example"],
    doc_md="""
    ### The hook in TaskFlow
    Looks a number up and sends it a text, unless the number is on the do-not-disturb list. The client has a method for
    every operation of the service, sync and async alike. A task's result becomes an XCom, so these return ids and
    figures only.
    """,
)
def taskflow_hook():
    """Describe the order of the steps."""
    is_not_dnd() >> greet()


# [start howto_taskflow_hook]
@task.short_circuit
def is_not_dnd():
    """Look the number up with the sync client."""
    from cpaas_provider.hooks.cpaas import CpaasHook

    params = get_current_context()["params"]
    with CpaasHook(params["cpaas_conn_id"]).get_conn() as client:
        return not client.lookup_phone(params["phone"]).dnd


@task
async def greet():
    """Send the text with the async idempotent client, so that no retry sends it again."""
    from cpaas_provider.hooks.cpaas import CpaasHook

    params = get_current_context()["params"]
    async with CpaasHook(params["cpaas_conn_id"]).get_async_idempotent_client() as client:
        sent = await client.send_sms(params["phone"], params["text"], sender_id=params["sender_id"])
    return {"id": sent["id"], "charge": sent["charge"]}


# [end howto_taskflow_hook]


taskflow_hook()
