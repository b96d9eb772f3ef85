"""A campaign with manual approval: a dry run counts and prices it, and nothing is sent before a user approves.

The approval is of apache-airflow-providers-standard, which comes with Airflow.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param, dag

from cpaas_provider.operators import SmsCampaignOperator

SMS_TEXT = "Hello {name}, your points are worth double until Sunday. Reply STOP to unsubscribe."
PRICE_PER_PAGE = 4
MAX_CHARGE = 20_000  # the highest cost that may be approved, in the account's currency

# [start howto_approval_form]
# What the approver reads. Recipients in the preview are masked; the texts are as the recipients will read them.
FORM = """
{% set check = ti.xcom_pull(task_ids='check') -%}
{% set preview = ti.xcom_pull(task_ids='check', key='preview') or [] -%}
| | |
|---|---|
| Recipients | {{ '{:,}'.format(check['recipients']) }} |
| Estimated cost | {{ '{:,.2f}'.format(check['estimated_charge'] or 0) }} |
{% for pages, texts in check['pages'].items() -%}
| Texts of {{ pages }} pages (SMS segments) | {{ '{:,}'.format(texts) }} |
{% endfor -%}
| Duplicates | {{ check['duplicates'] }} |
| Invalid rows | {{ check['invalid_rows'] }} |
| Not allowed by the connection | {{ check['not_allowed'] }} |

{% for message in preview %}
**To {{ message['recipient'] }}:** {{ message['texts'] | join(' ') }}
{% endfor %}
"""
# [end howto_approval_form]


@dag(
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params={
        "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
        "csv": Param(
            str(Path(__file__).parent / "data" / "customers.csv"),
            type="string",
            description="The recipients: a path or URL for Airflow's object storage, with the columns phone and name.",
        ),
        "sms_sender_id": Param("Example", type="string", maxLength=11, description="The sender that the phone shows."),
        "sms_text": Param(SMS_TEXT, type="string", description="The SMS; placeholders are columns of the CSV."),
    },
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["cpaas", "example"],
    doc_md="""
    ### Approved campaign
    `check` is a dry run: it reads the source, counts recipients and pages, and estimates the cost. `approve` shows
    these figures and some rendered texts in Airflow's form, and waits without a worker slot. After *Approve* the
    campaign is sent. After *Reject*, or without a response in a day, nothing is sent.

    The source may change while the run waits. `max_charge` limits what is sent then.
    """,
)
def approved_campaign():
    """Describe the order of the steps."""
    # [start howto_approval]
    campaign = {
        "source": "{{ params.csv }}",
        "content": "{{ params.sms_text }}",
        "sender_id": "{{ params.sms_sender_id }}",
        "cpaas_conn_id": "{{ params.cpaas_conn_id }}",
        "substitution_defaults": {"name": "customer"},
        "max_failure_ratio": 0.2,  # invalid rows and rejected recipients together
        "max_charge": MAX_CHARGE,
        "price_per_page": PRICE_PER_PAGE,
    }
    check = SmsCampaignOperator(task_id="check", dry_run=True, preview_count=3, **campaign)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Send {{ ti.xcom_pull(task_ids='check')['recipients'] }} SMS?",
        body=FORM,
        response_timeout=timedelta(days=1),
        defaults="Reject",  # also when no user responds in time
    )
    send = SmsCampaignOperator(
        task_id="send",
        # The run may have waited for a day. Later than this it is stale, and does not send.
        max_lateness=timedelta(days=2),
        **campaign,
    )
    # [end howto_approval]
    check >> approve >> send


approved_campaign()
