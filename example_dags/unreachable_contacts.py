"""Mark contacts whose messages failed, by delivery reports: the way back from a campaign to the contact list."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Param, dag

from cpaas_provider.assets import on_messages_failed
from cpaas_provider.operators import SyncContactsOperator
from cpaas_provider.sources import DeliveryEventSource, SqlSource

PARAMS = {
    "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
    "warehouse_conn_id": Param("warehouse", type="string", description="The connection to the SQL database."),
    "campaign": Param("", type="string", description="For a manual run: the reference of a campaign."),
}


# [start howto_mark_unreachable]
@dag(
    schedule=on_messages_failed("cpaas_default"),
    catchup=False,
    max_active_runs=1,
    params=PARAMS,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["cpaas", "example"],
    doc_md="""
    ### Unreachable contacts
    Starts when messages failed. Sets the column `SMS status` of their contacts to `undelivered`. Delivery reports
    contain numbers, and the warehouse has the customer of each number. `mode="update"` creates no row.

    Needs `callback_url` on the connection, and a TEXT column `SMS status` in the contact list.
    """,
)
def unreachable_contacts():
    """Describe the one step."""
    SyncContactsOperator(
        task_id="mark",
        cpaas_conn_id="{{ params.cpaas_conn_id }}",
        source=DeliveryEventSource(
            "{{ dag_run.partition_key or params.campaign }}",
            contacts=SqlSource("{{ params.warehouse_conn_id }}", "SELECT customer_id, phone FROM customers"),
            region="NG",
        ),
        key="customer_id",
        columns={"SMS status": {"constant": "undelivered"}},
        mode="update",
    )


unreachable_contacts()
# [end howto_mark_unreachable]
