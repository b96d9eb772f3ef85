"""What an author wrote on a campaign operator, as the campaign takes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.api.amounts import Amount, divide, to_decimal
from cpaas_provider.api.text import has_control_character, named_in, placeholders_in, trim_invisible
from cpaas_provider.api.text.sms import SmsWriter, gsm7_savings
from cpaas_provider.api.values import readable_text
from cpaas_provider.sending.campaign.campaign import AuthorOptions, CampaignOptions
from cpaas_provider.sending.campaign.content import Content
from cpaas_provider.sending.campaign.guards.send_window import SendWindow
from cpaas_provider.sending.campaign.rejections import OnRejectedBatch
from cpaas_provider.sending.journal.log import MAX_RECIPIENTS_PER_INTENT
from cpaas_provider.sending.requests.message import (
    MESSAGE_KINDS,
    check_header_fields,
    sender_of,
    without_byte_order_marks,
)
from cpaas_provider.sending.spec import OnUnknown, channel_of

if TYPE_CHECKING:
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.partitions import Partition
    from cpaas_provider.tasks.campaign.spec import CampaignSpec


def build_options(
    spec: CampaignSpec,
    connection: CpaasConnection,
    partition: Partition,
    confirmed: Mapping[str, int | str],
) -> CampaignOptions:
    """Return the terms of a campaign, or of its part: budgets are divided, a floor of the balance is not.

    :param confirmed: limits of the campaign, or of its part, that a user confirmed in place of the author's
    """
    max_charge: Amount | None = None if spec.max_charge is None else divide(spec.max_charge, partition.of)
    max_charge_of_all: Amount | None = spec.max_charge
    if max_charge is not None and "max_charge" in confirmed:
        raised = Decimal(confirmed["max_charge"])
        max_charge_of_all = to_decimal(spec.max_charge or 0) - to_decimal(max_charge) + raised
        max_charge = raised
    settings = connection.settings
    window = spec.send_window
    zone = spec.timezone or (spec.timezone_column and "UTC")
    options = {option.name: getattr(spec, option.name) for option in dataclasses.fields(AuthorOptions)}
    options["max_recipients"] = int(confirmed.get("max_recipients", spec.max_recipients or 0)) or None
    options["max_charge"] = max_charge
    if "min_balance" in confirmed:
        options["min_balance"] = Decimal(confirmed["min_balance"])
    return CampaignOptions(
        recipients_per_request=min(connection.recipients_per_request, MAX_RECIPIENTS_PER_INTENT),
        window=spec.max_pending_requests or settings.max_concurrency,
        in_flight=settings.max_concurrency,
        on_unknown=OnUnknown(spec.on_unknown),
        on_rejected_batch=OnRejectedBatch(spec.on_rejected_batch),
        max_charge_of_all=max_charge_of_all,
        send_window=None if window is None else SendWindow.read(window, zone),
        outcome_file=spec.results_path is not None,
        **options,
    )


def build_content(spec: CampaignSpec, connection: CpaasConnection) -> Content:
    """Return the message with its placeholders, or fail the task."""
    for name in spec.text_fields:
        text = spec.body.get(name)
        if not isinstance(text, (str, type(None))):
            raise AirflowFailException(f"{name} must be text. Nothing was sent.")
    if not spec.body.get("content") and not spec.body.get("template_id"):
        raise AirflowFailException("A campaign needs content or template_id. Nothing was sent.")
    fields = without_byte_order_marks(spec.body, spec.text_fields)
    texts = [text for name in spec.text_fields if (text := fields.get(name))]
    columns = _columns(spec, texts, connection.placeholder_format)
    defaults = _defaults(spec.substitution_defaults or {})
    if strangers := sorted(set(defaults) - set(columns)):
        raise AirflowFailException(
            f"substitution_defaults names {', '.join(strangers)}, and the text has no such placeholder. It has "
            f"{', '.join(columns) or 'none'}. Nothing was sent."
        )
    kind = MESSAGE_KINDS[spec.operation]
    content = fields.get("content") or None
    writer = None
    if channel_of(spec.operation, fields) == "sms":
        writer = SmsWriter(content, columns, connection.placeholder_format, spec.encoding)
        if content:
            # Before anything is recorded, so that the text of each try has the same hash.
            fields["content"] = writer.content
            texts = [writer.content]
    body = {"sender_id": sender_of(kind, spec.sender_id, connection), **fields}
    check_header_fields(kind, body)
    for name in named_in(spec.body.get("subject") or "", defaults, connection.placeholder_format):
        if has_control_character(defaults[name]):
            raise AirflowFailException(
                f"substitution_defaults has a line break or another control character for {name} of the subject. "
                "Nothing was sent. Remove it, as a subject is one line."
            )
    measured = spec.operation == "send_sms" and content is not None
    return Content(
        kind.channel,
        body,
        texts,
        columns,
        defaults,
        connection.placeholder_format,
        measured,
        writer,
        gsm7_savings(content, columns, connection.placeholder_format) if spec.dry_run and writer and content else None,
    )


def _defaults(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of placeholders where a row has none."""
    defaults = {}
    for name, value in values.items():
        # A text is the author's own, so it may be the word "None".
        text = trim_invisible(value) if isinstance(value, str) else readable_text(value)
        if not text:
            raise AirflowFailException(f"substitution_defaults has no text for {name}. Nothing was sent.")
        defaults[str(name)] = text
    return defaults


def _columns(spec: CampaignSpec, texts: list[str], placeholder_format: str) -> dict[str, str]:
    substitutions = spec.substitutions
    if substitutions is None:
        # The provider cannot read the placeholders of a template that the service stores.
        return {name: name for text in texts for name in placeholders_in(text, placeholder_format)}
    if isinstance(substitutions, Mapping):
        return {str(name): str(column) for name, column in substitutions.items()}
    if isinstance(substitutions, str) or not isinstance(substitutions, Iterable):
        raise AirflowFailException("substitutions must be a mapping or a list of columns. Nothing was sent.")
    return {str(name): str(name) for name in substitutions}
