"""Send the contacts that changed in a warehouse table every hour, by a cursor column."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Param, dag

from cpaas_provider.operators import SyncContactsOperator
from cpaas_provider.sources import SqlSource

PARAMS = {
    "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
    "warehouse_conn_id": Param("warehouse", type="string", description="The connection to the SQL database."),
}

# [start howto_cursor]
# In the first run the cursor is NULL, and all rows are read. Later it is the largest updated_at of the last complete
# run. With >= a row that was written in that same moment is read again, and is not sent if it did not change.
CHANGED = """
    SELECT customer_id, first_name, last_name, phone, email, born, plan, points, tags, updated_at
    FROM customers
    WHERE updated_at >= COALESCE(:cursor, updated_at)
"""


@dag(
    schedule="@hourly",
    catchup=False,
    max_active_runs=1,
    params=PARAMS,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["cpaas", "example"],
    doc_md="""
    ### Contact updates
    Reads only the customers that changed since the last run. Key and columns are those of `contact_list_sync`, so both
    DAGs use one key map, and neither creates a row twice. If both run at the same time, the second one waits.

    A query of changed rows has no deleted ones. `contact_list_sync` deletes their rows at night.
    """,
)
def contact_updates():
    """Describe the one step."""
    SyncContactsOperator(
        task_id="sync",
        cpaas_conn_id="{{ params.cpaas_conn_id }}",
        source=SqlSource("{{ params.warehouse_conn_id }}", CHANGED),
        key="customer_id",
        cursor_column="updated_at",
        columns={
            "Name": {"template": "{first_name} {last_name}"},
            "Phone": {"source": "phone", "region": "NG"},
            "Email": "email",
            "Birthday": "born",
            "Plan": "plan",
            "Points": "points",
            "Tags": {"source": "tags", "separator": ";", "keep_when_blank": True},
        },
        max_failure_ratio=0.02,
        max_duration=timedelta(minutes=45),
    )


contact_updates()
# [end howto_cursor]
