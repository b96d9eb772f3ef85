"""What an author wrote on a campaign operator, as the campaign takes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.api.amounts import divide
from cpaas_provider.api.text import placeholders_in
from cpaas_provider.sending.campaign.campaign import CampaignOptions
from cpaas_provider.sending.campaign.content import Content
from cpaas_provider.sending.campaign.guards.send_window import SendWindow
from cpaas_provider.sending.campaign.rejections import OnRejectedBatch
from cpaas_provider.sending.journal.log import MAX_RECIPIENTS_PER_INTENT
from cpaas_provider.sending.spec import OnUnknown

if TYPE_CHECKING:
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.operators.base_campaign import CampaignOperator
    from cpaas_provider.sending.partitions import Partition


def build_options(operator: CampaignOperator, connection: CpaasConnection, partition: Partition) -> CampaignOptions:
    """Return the terms of a campaign, or of its part: budgets are divided, a floor of the balance is not."""
    settings = connection.settings
    window = operator.send_window
    zone = operator.timezone or (operator.timezone_column and "UTC")
    return CampaignOptions(
        recipients_per_request=min(connection.recipients_per_request, MAX_RECIPIENTS_PER_INTENT),
        window=operator.max_pending_requests or settings.max_concurrency,
        requests_per_second=settings.requests_per_second,
        in_flight=settings.max_concurrency,
        on_unknown=OnUnknown(operator.on_unknown),
        on_rejected_batch=OnRejectedBatch(operator.on_rejected_batch),
        unknown_timeout=operator.unknown_timeout,
        max_recipients=operator.max_recipients,
        max_charge=None if operator.max_charge is None else divide(operator.max_charge, partition.of),
        min_balance=operator.min_balance,
        price_per_page=operator.price_per_page,
        refuse_missing_charge=operator.on_missing_charge == "fail",
        skip_invalid_suppression=operator.on_invalid_suppression == "skip",
        max_failure_ratio=operator.max_failure_ratio,
        max_identical_rejections=operator.max_identical_rejections,
        send_window=None if window is None else SendWindow.read(window, zone),
        test_only=operator.test_only,
        outcome_file=operator.results_path is not None,
        progress_interval=operator.progress_interval,
    )


def build_content(operator: CampaignOperator, connection: CpaasConnection) -> Content:
    """Return the message with its placeholders, or fail the task."""
    texts = []
    for name in operator.text_fields:
        text = operator.rendered(name)
        if not isinstance(text, (str, type(None))):
            raise AirflowFailException(f"{name} must be text. Nothing was sent.")
        if text:
            texts.append(text)
    if not operator.rendered("content") and not operator.template_id:
        raise AirflowFailException("A campaign needs content or template_id. Nothing was sent.")
    columns = _columns(operator, texts, connection.placeholder_format)
    defaults = {str(name): str(value) for name, value in (operator.substitution_defaults or {}).items()}
    if strangers := sorted(set(defaults) - set(columns)):
        raise AirflowFailException(
            f"substitution_defaults names {', '.join(strangers)}, and the text has no such placeholder. It has "
            f"{', '.join(columns) or 'none'}. Nothing was sent."
        )
    measured = operator.message_type.operation == "send_sms" and bool(operator.rendered("content"))
    return Content(
        operator.message_type,
        operator.body(connection),
        texts,
        columns,
        defaults,
        connection.placeholder_format,
        measured,
    )


def _columns(operator: CampaignOperator, texts: list[str], placeholder_format: str) -> dict[str, str]:
    given = operator.substitutions
    if given is None:
        # The provider cannot read the placeholders of a template that the service stores.
        return {name: name for text in texts for name in placeholders_in(text, placeholder_format)}
    if isinstance(given, Mapping):
        return {str(name): str(column) for name, column in given.items()}
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise AirflowFailException("substitutions must be a mapping or a list of columns. Nothing was sent.")
    return {str(name): str(name) for name in given}
