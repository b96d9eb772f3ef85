"""Synchronise a few rows of the contact list with this file: create, update, delete."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Param, Variable, dag, get_current_context, task

from cpaas_provider.operators.contacts import DeleteContactRowOperator, UpsertContactRowOperator

# The Variable that stores the row ids: {key: row id}. It holds no personal data.
ROW_IDS = "cpaas_contact_rows"

CONTACTS = {
    "reception": {"Name": "Ada Okafor", "Phone": "+234 803 555 0101", "Email": "ada@example.com", "Points": 120},
    "night-shift": {"Name": "Chidi Eze", "Phone": "+234 806 555 0102", "Email": "chidi@example.org", "Points": 40},
    "driver": {"Name": "Zoë D'Souza", "Phone": "+44 7700 900103", "Email": "zoe@example.net", "Points": None},
}
KEYS = list(CONTACTS)


def row_ids():
    """Return the ids of the rows created so far, by key."""
    return Variable.get(ROW_IDS, default={}, deserialize_json=True)


def row_id_at(map_index):
    """Return the row id of a mapped task, or an empty string if it has no row yet."""
    return row_ids().get(KEYS[map_index], "")


@dag(
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params={"cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service.")},
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    user_defined_macros={"row_id_at": row_id_at},
    tags=["cpaas", "example"],
    doc_md="""
    ### Contact list sync
    For a short list in a file. One mapped task for each contact updates its row, or creates the row if there is none.
    Rows of contacts that are no longer listed are deleted. The service cannot list rows, so a Variable stores their
    ids. For thousands of contacts, see `customer_campaign`.
    """,
)
def contact_list_sync():
    """Describe the order of the steps."""
    # [start howto_upsert_contacts]
    upsert = UpsertContactRowOperator.partial(
        task_id="upsert",
        cpaas_conn_id="{{ params.cpaas_conn_id }}",
        row_id="{{ row_id_at(ti.map_index) }}",
    ).expand(columns=list(CONTACTS.values()))
    unlisted = store_row_ids()
    delete = DeleteContactRowOperator.partial(
        task_id="delete", cpaas_conn_id="{{ params.cpaas_conn_id }}", skip_if_missing=True
    ).expand(row_id=unlisted)
    upsert >> unlisted
    delete >> remove_row_ids(unlisted)
    # [end howto_upsert_contacts]


@task(trigger_rule="all_done")
def store_row_ids():
    """Store the ids of the written rows, even if another row failed. Return the ids of contacts no longer listed."""
    ti = get_current_context()["ti"]
    results = ti.xcom_pull(task_ids="upsert", map_indexes=list(range(len(KEYS))))
    known = row_ids()
    known.update({key: result["row_id"] for key, result in zip(KEYS, results, strict=True) if result})
    Variable.set(ROW_IDS, known, serialize_json=True)
    if None in results:
        raise RuntimeError(
            f"{results.count(None)} of {len(KEYS)} rows were not written. The failed tasks' logs have the reasons."
        )
    return [row_id for key, row_id in known.items() if key not in CONTACTS]


@task(trigger_rule="none_failed")
def remove_row_ids(deleted):
    """Remove the ids of the deleted rows from the Variable."""
    remaining = {key: row_id for key, row_id in row_ids().items() if row_id not in deleted}
    Variable.set(ROW_IDS, remaining, serialize_json=True)
    return {"rows": len(remaining), "deleted": len(deleted)}


contact_list_sync()
