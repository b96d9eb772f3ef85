"""An SMS to the engineer on call when tasks fail, and an email when the DAG is late."""

from __future__ import annotations

from datetime import timedelta

# [start howto_failure_alerts]
from airflow.sdk import AsyncCallback, DeadlineAlert, DeadlineReference, Param, dag, task

from cpaas_provider.notifications import EmailNotifier, SmsNotifier

ON_CALL = SmsNotifier(
    recipients="{{ params.on_call }}",
    sender_id="{{ params.sender_id }}",
    cpaas_conn_id="{{ params.cpaas_conn_id }}",
)

PARAMS = {
    "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
    "on_call": Param("+2348035550100", type="string", description="The number of the engineer on call."),
    "sender_id": Param("Example", type="string", maxLength=11, description="The sender that the phone shows."),
    "files": Param(20, type="integer", minimum=1, maximum=1000, description="How many files are loaded."),
    "broken": Param(0, type="integer", minimum=0, description="How many of them fail."),
}


@dag(
    schedule=None,
    catchup=False,
    params=PARAMS,
    # However many tasks fail, one message states their number.
    default_args={"on_failure_callback": ON_CALL},
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(hours=2),
        callback=AsyncCallback(EmailNotifier, kwargs={"recipients": ["data-team@example.com"]}),
    ),
    tags=["cpaas", "example"],
    doc_md="""
    ### Failure alerts
    Loads files in mapped tasks, of which some fail. The engineer on call gets one SMS with the number of failures and a
    link to the run. If the run takes over two hours, the team gets an email.
    """,
)
def failure_alerts():
    """Describe the two steps."""

    @task
    def list_files(params=None):
        return list(range(params["files"]))

    @task
    def load(number, params=None):
        if number < params["broken"]:
            raise ValueError(f"File {number} is not readable.")

    load.expand(number=list_files())


failure_alerts()
# [end howto_failure_alerts]
