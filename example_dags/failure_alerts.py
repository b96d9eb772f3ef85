"""An SMS to the engineer on call when tasks fail, and an email to the team when the DAG run has failed."""

from __future__ import annotations

# [start howto_failure_alerts]
from airflow.sdk import Param, dag, task

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
    on_failure_callback=EmailNotifier(
        recipients=["data-team@example.com"],
        sender_id="airflow@example.com",
        cpaas_conn_id="{{ params.cpaas_conn_id }}",
    ),
    tags=["cpaas", "example"],
    doc_md="""
    ### Failure alerts
    Loads files in mapped tasks, of which some fail. The engineer on call gets one SMS with the number of failures and a
    link to the run. When the run has failed, the team gets an email.
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
