"""One message over several channels: each channel sends to the recipients that no earlier one delivered to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import TaskGroup
from airflow.sdk.exceptions import AirflowSkipException

from cpaas_provider.operators.email import EmailCampaignOperator
from cpaas_provider.operators.sms import SmsCampaignOperator
from cpaas_provider.sensors.delivery import DeliverySensor
from cpaas_provider.task_groups.undelivered import UndeliveredSource

if TYPE_CHECKING:
    from airflow.sdk import Context

_COLUMNS = {"sms": "phone", "whatsapp": "phone", "email": "email"}
_RESULT_KEYS = ("return_value", "report")
"""The XComs with the report of a campaign. One that failed, or had no recipients, leaves the second."""

_OWN_ARGUMENTS = frozenset(
    {
        "source",
        "results_path",
        "task_id",
        "track_recipients",
        "dry_run",
        "partition",
        "test_only",
        "frequency_contact",
    }
)
"""Arguments that only the group may set, or that do not work in it."""


def deliver_with_fallback(
    group_id: str,
    *,
    source: Any,
    steps: Sequence[Mapping[str, Any]],
    results_folder: str,
    wait: timedelta | float = timedelta(hours=1),
    region: str | None = None,
    **common: Any,
) -> TaskGroup:
    """Return a task group that sends over one channel after the other, to recipients without a delivered message.

    A recipient gets the message at most once on each channel. Between two channels the group waits on the triggerer
    until every recipient has a final status, or until ``wait`` is over. With ``on_unknown="skip"`` it waits for
    recipients of unknown outcome, too. A recipient whose delivery is reported by then gets the message on no further
    channel. A recipient whose report arrives later may.

    A row without a usable recipient for one channel is an invalid row of that campaign, and goes on to the next. Such
    rows count for ``max_failure_ratio``, so the group sets it to 1 unless you give another.

    An ``idempotency_key`` holds for each channel by itself: over all runs with the key, a recipient gets the message at
    most once on each channel. Under a ``frequency_cap`` the group is one contact, so the next channel reaches
    recipients that the SMS has brought to the cap. A number and an address count separately.

    The group needs delivery reports: set ``callback_url`` on the connection. If a campaign or a wait fails, the later
    channels do not run. Clear the failed task to continue. If a campaign leaves no result, because it was skipped by a
    task or a branch before the group, the later channels are skipped, too.

    :param group_id: id of the task group. Its tasks are ``sms``, ``sms_delivered``, ``whatsapp`` and so on
    :param source: the recipients, as for a campaign, with a column for each channel (templated)
    :param steps: the channels in their order, each a mapping. ``channel`` is ``sms``, ``whatsapp`` or ``email``.
        ``wait`` overrides how long the group waits for delivery. Other keys are arguments of the campaign operator of
        the channel, such as ``content``. Default of ``recipient_column``: ``phone``, or ``email``
    :param results_folder: a folder for the results files, which all workers can read. It must differ for each run, such
        as ``"s3://campaigns/{{ run_id }}"`` (templated)
    :param wait: the longest wait for delivery on a channel, as a timedelta or in seconds
    :param region: two-letter region of numbers that are not international, for connections without ``default_region``
    :param common: arguments of all campaigns, such as ``cpaas_conn_id`` and ``max_recipients``
    :return: the group, to be ordered like a task
    :raises ValueError: when a step cannot be used
    """
    _check(steps, common, source, results_folder)
    folder = results_folder.rstrip("/")
    with TaskGroup(group_id=group_id) as group:
        contact = _contact(str(group.group_id), common, steps)
        rows, previous_wait, previous_campaign = source, None, None
        for number, step in enumerate(steps, 1):
            channel = str(step["channel"])
            arguments = common | dict(step)
            if previous_campaign is not None:
                arguments["pre_execute"] = _skip_without(previous_campaign.task_id, arguments.get("pre_execute"))
            campaign = previous_campaign = _campaign(channel, rows, f"{folder}/{channel}.jsonl", arguments, contact)
            if previous_wait is not None:
                previous_wait >> campaign
                # A sensor that timed out is skipped, and so is a campaign without recipients.
                campaign.trigger_rule = "none_failed"
            if number < len(steps):
                delivery_results = f"{folder}/{channel}_delivered.jsonl"
                previous_wait = DeliverySensor(
                    task_id=f"{channel}_delivered",
                    send_result=campaign.output,
                    results_path=delivery_results,
                    # Unknown is not nothing: the message may be on its way.
                    wait_for_unknown=True,
                    timeout=step.get("wait", wait),
                    deferrable=True,
                    soft_fail=True,
                    execution_timeout=None,
                )
                rows = UndeliveredSource(
                    rows,
                    delivery_results,
                    column=campaign.recipient_column,
                    accepted=_accepted_or_unknown(campaign.task_id),
                    region=region,
                    cpaas_conn_id=campaign.cpaas_conn_id,
                )
    return group


def _campaign(channel: str, rows: Any, results_path: str, step: dict[str, Any], contact: str) -> Any:
    arguments = {
        "recipient_column": _COLUMNS[channel],
        "max_failure_ratio": 1.0,
        **{name: value for name, value in step.items() if name not in ("channel", "wait")},
        "task_id": channel,
        "source": rows,
        "results_path": results_path,
        "track_recipients": True,
        "frequency_contact": contact,
    }
    if channel != "email":
        return SmsCampaignOperator(**{"channel": channel, **arguments})
    return EmailCampaignOperator(**arguments)


def _contact(group_id: str, common: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> str:
    """Return a template of the name of the contact that the channels are together.

    With an idempotency key all runs are one contact, as a later run may continue what an earlier one began.
    """
    keys = [str(key) for step in steps if (key := {**common, **step}.get("idempotency_key")) is not None]
    if keys:
        return f"{group_id}\n{keys[0]}"
    return f"{group_id}\n{{{{ dag.dag_id }}}}\n{{{{ run_id }}}}\n{{{{ ti.map_index }}}}"


def _skip_without(task_id: str, then: Callable[[Context], Any] | None) -> Callable[[Context], None]:
    """Return what runs before a campaign. It skips the campaign if that of the channel before left no result.

    A task before the group may have skipped that channel, or its campaign may have reached recipients.

    :param then: what the author has run before a campaign
    """

    def check(context: Context) -> None:
        ti = context["ti"]
        # In a mapped group, each instance has its own report.
        if not any(ti.xcom_pull(task_ids=task_id, key=key, map_indexes=ti.map_index) for key in _RESULT_KEYS):
            # Imported on the worker, so that parsing a DAG stays fast.
            from cpaas_provider.tasks.airflow.context import SKIP_REASON_KEY, push_or_warn

            reason = (
                f"Nothing was sent, because the task {task_id} left no report. It was skipped, or marked successful "
                "before it ended. So it is not known which recipients its message reached."
            )
            push_or_warn(context, SKIP_REASON_KEY, reason)
            raise AirflowSkipException(reason)
        if then is not None:
            then(context)

    return check


def _accepted_or_unknown(task_id: str) -> str:
    """Return a template of the number of recipients who may have got the message of a campaign."""
    pulled = [f"ti.xcom_pull(task_ids='{task_id}', key='{key}', map_indexes=ti.map_index)" for key in _RESULT_KEYS]
    result = f"({' or '.join(pulled)} or {{}})"
    return f"{{{{ {result}.get('sent', 0) + {result}.get('unknown_recipients', 0) }}}}"


def _check(steps: Any, common: Mapping[str, Any], source: Any, results_folder: Any) -> None:
    if not isinstance(steps, Sequence) or isinstance(steps, str) or len(steps) < 2:
        raise ValueError("deliver_with_fallback: steps must be a list of at least two channels.")
    for number, step in enumerate(steps, 1):
        if not isinstance(step, Mapping) or step.get("channel") not in _COLUMNS:
            raise ValueError(
                f"deliver_with_fallback: step {number} must be a mapping whose channel is one of {', '.join(_COLUMNS)}."
            )
        if refused := sorted(_OWN_ARGUMENTS & {*step, *common}):
            raise ValueError(f"deliver_with_fallback: step {number} has {', '.join(refused)}, which the group sets.")
    channels = [step["channel"] for step in steps]
    if len(set(channels)) < len(channels):
        raise ValueError("deliver_with_fallback: a channel is given twice. Each may be given once.")
    if source is None:
        raise ValueError("deliver_with_fallback: source is None.")
    if not isinstance(results_folder, str) or not results_folder.strip("/ "):
        raise ValueError("deliver_with_fallback: results_folder must be the path of a folder.")
