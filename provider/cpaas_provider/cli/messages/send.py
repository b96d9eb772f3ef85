"""``airflow cpaas send-sms`` and ``send-email``."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cpaas_provider.api.amounts import counted, total
from cpaas_provider.api.core import Call
from cpaas_provider.api.models.messages import Message
from cpaas_provider.api.recipients.reader import RecipientList, mask_recipient, recipient_key
from cpaas_provider.api.text import placeholders_in
from cpaas_provider.api.text.sms import (
    SmsWriter,
    count_other_characters,
    describe_savings,
    gsm7_savings,
    is_gsm7,
    measure_sms,
    strip_byte_order_marks,
)
from cpaas_provider.api.values import no_value_reason
from cpaas_provider.cli.messages.campaign_database import refuse_other_database
from cpaas_provider.cli.messages.newest_try import recorded_try
from cpaas_provider.cli.messages.requests import CommandSpec, run_request
from cpaas_provider.cli.messages.suppressions import all_suppressed, open_suppressions
from cpaas_provider.cli.messages.tracking import Tracking
from cpaas_provider.cli.messages.typed import StandardInput, read_file, read_recipients
from cpaas_provider.cli.running import after_sending, connection_of, guarded
from cpaas_provider.cli.terminal import aside, print_record, say
from cpaas_provider.sending.campaign.content import EMAIL, SMS, Channel
from cpaas_provider.sending.spec import RequestResult, channel_of

_SHOWN = 20


@dataclass(frozen=True)
class _Command:
    """The differences between the two commands.

    :param sender: the setting of the connection that holds the default sender
    :param fields: arguments of the command that are fields of the request, too
    """

    name: str
    channel: Channel
    sender: str
    fields: tuple[str, ...]
    estimate_fields: tuple[str, ...] = ()


_SEND_SMS = _Command("send-sms", SMS, "sender_id", ("template_id", "channel"), ("encoding", "pages"))
_SEND_EMAIL = _Command("send-email", EMAIL, "email_sender_id", ("template_id", "subject", "from_name", "reply_to"))


def _send(command: _Command, args: Namespace) -> None:
    channel = command.channel
    stdin = StandardInput()
    if args.idempotency_key is not None and (reason := no_value_reason(args.idempotency_key)):
        raise SystemExit(f"--idempotency-key {reason}. Nothing was sent.")
    if args.resend_unknown and args.idempotency_key is None:
        raise SystemExit("--resend-unknown needs --idempotency-key. Nothing was sent.")
    connection = connection_of(args.conn_id)
    reader = connection.settings.recipient_reader(channel.recipients, getattr(args, "region", None))
    recipients = read_recipients(args.recipients, args.recipients_file, stdin, reader)
    text = _read_content(args, stdin)
    content = _write_content(args, command, text)
    sender = args.sender_id or getattr(connection, command.sender)
    if not sender:
        raise SystemExit(
            f"No sender is set. Nothing was sent. Give --sender-id, or set {command.sender} on the connection."
        )
    _refuse_placeholders([content, getattr(args, "subject", None)], connection.placeholder_format)
    body = {"sender_id": sender, "content": content, **{name: getattr(args, name) for name in command.fields}}
    listed = len(recipients.allowed) + len(recipients.not_allowed)
    if listed > connection.recipients_per_request:
        raise SystemExit(
            f"{counted(listed, 'recipient')} are too many for one request: recipients_per_request of the "
            f"connection is {connection.recipients_per_request}. Nothing was sent. Send them as a campaign."
        )
    allowed = recipients.allowed
    if not allowed:
        raise SystemExit(
            f"None of {counted(listed, 'recipient')} is on allowed_recipients of the connection. Nothing was sent."
        )

    def build_call(chosen: Sequence[str], reference: str, callback_url: str | None) -> Call[Any]:
        return channel.build_call(
            [channel.as_read(recipient) for recipient in chosen],
            external_ref=args.external_ref or reference,
            callback=callback_url,
            **body,
        )

    # Refuse a request that breaks the contract before its key is used, and in a dry run.
    build_call(allowed, "cpaas-dry-run", None).build(connection.settings)
    kind = channel_of(channel.operation, body)
    if args.dry_run:
        _dry_run(args, command, kind, body, text, recipients)
        return
    spec = CommandSpec(
        operation=channel.operation,
        recipients=tuple(allowed),
        body=body,
        build=build_call,
        read=partial(_read, command),
    )
    with contextlib.ExitStack() as opened:
        has_reports = bool(connection.callback_url or connection.webhook_secret) and not args.no_callback
        needs_database = has_reports or args.idempotency_key is not None
        database, suppressions = open_suppressions(opened, args, kind, needs_database=needs_database)
        if args.idempotency_key is not None and database is not None:
            refuse_other_database(database, "A message with this key could be sent twice, so nothing was sent.")
            opened.enter_context(recorded_try(database))
        tracking = None
        if has_reports and database is not None:
            tracking = Tracking(connection, args, channel.operation, command.name, database)
        sent = run_request(spec, args, connection, database, tracking, suppressions=suppressions)
    results = [entry.result or {} for entry in sent.outcome.accepted]
    latest = results[-1] if results else {}
    references = [entry.reference for entry in sent.outcome.accepted]
    with after_sending(
        f"The service accepted it for {counted(sent.outcome.sent, 'recipient')}, references: {', '.join(references)}."
    ):
        print_record(
            {
                "id": latest.get("id"),
                "recipients": sent.outcome.sent,
                "not_allowed": len(recipients.not_allowed),
                "suppressed": sent.suppressed,
                "charge": total(result.get("charge") for result in results),
                **{name: latest.get(name) for name in ("balance", *command.estimate_fields, "created_datetime")},
                "references": references,
                "delivery_reports": tracking.endpoint if tracking else None,
                "sent_by_earlier_run": sent.outcome.earlier,
            },
            args.output,
        )
        if sent.outcome.earlier:
            words = "An earlier run with this --idempotency-key sent it. Nothing was sent again."
            say(f"{words} The content was another one." if sent.changed else words, aside(args))
    if sent.partly is not None:
        raise SystemExit(
            f"{sent.partly} The service accepted {sent.outcome.sent} of {counted(len(allowed), 'recipient')}. Correct "
            "the others and send to them alone."
        )


cpaas_send_sms = guarded(partial(_send, _SEND_SMS))
cpaas_send_email = guarded(partial(_send, _SEND_EMAIL))


def _read_content(args: Namespace, stdin: StandardInput) -> str | None:
    """Return the text to send; ``None`` for a template of the service."""
    sources = [args.content is not None, args.content_file is not None, args.template_id is not None]
    if sum(sources) > 1:
        raise SystemExit("Give one of --content, --content-file and --template-id. Nothing was sent.")
    if args.template_id is not None:
        return None
    if args.content is not None:
        content = str(args.content)
    elif args.content_file is not None:
        content = read_file(args.content_file, stdin, "the content")
    elif sys.stdin.isatty():
        raise SystemExit("Give --content, --content-file or --template-id, or pipe the content in. Nothing was sent.")
    else:
        content = stdin.read("the content")
    # Commands like echo, and editors, end a text with a line break.
    content = content.removesuffix("\n").removesuffix("\r")
    if not content.strip():
        raise SystemExit("The content is empty. Nothing was sent.")
    return content


def _write_content(args: Namespace, command: _Command, content: str | None) -> str | None:
    """Return the text as it is sent."""
    encoding = getattr(args, "encoding", None)
    is_sms = command.channel is SMS and args.channel == "sms"
    if encoding is not None and not is_sms:
        raise SystemExit("--encoding is for --channel sms only. Nothing was sent.")
    if content is None:
        return None
    written = SmsWriter(content, encoding=encoding).content if is_sms else strip_byte_order_marks(content)
    if encoding is not None and written is not None and not is_gsm7(written):
        others = counted(count_other_characters(content), "character")
        say(f"--encoding gsm7 leaves the text in UCS-2: {others} of it have no form in GSM-7.", aside(args))
    return written


def _refuse_placeholders(texts: Sequence[str | None], placeholder_format: str) -> None:
    """Refuse to send ``Dear {name}``: the command has no values of placeholders."""
    if names := sorted({name for text in texts if text for name in placeholders_in(text, placeholder_format)}):
        raise SystemExit(
            f"The text has placeholders ({', '.join(names)}), and this command has no values for them. Recipients "
            "would read the placeholders. Nothing was sent. To fill them, send by an operator with personalisation. If "
            "they are no placeholders, set placeholder_format of the connection to other marks."
        )


def _read(command: _Command, response: Message) -> RequestResult:
    estimate = response.meta.estimate if response.meta else None
    created = response.created_datetime
    details = {
        "id": response.id,
        "charge": estimate.charge if estimate else None,
        "balance": estimate.available_balance if estimate else None,
        **{name: getattr(estimate, name, None) for name in command.estimate_fields},
        "created_datetime": created.isoformat() if created else None,
    }
    rejected = frozenset(map(recipient_key, response.rejected_recipients))
    return RequestResult(response.id, details=details, rejected=rejected, rejection=response.rejection)


def _dry_run(
    args: Namespace,
    command: _Command,
    kind: str,
    body: dict[str, Any],
    text: str | None,
    recipients: RecipientList,
) -> None:
    """Show what would be sent.

    :param text: the text as its author wrote it
    """
    content = body["content"]
    with contextlib.ExitStack() as opened:
        _, suppressions = open_suppressions(opened, args, kind)
        listed = suppressions.find(recipients.allowed) if suppressions else {}
    allowed = [recipient for recipient in recipients.allowed if recipient not in listed]
    if not allowed:
        raise all_suppressed(len(listed))
    record: dict[str, Any] = {
        "recipients": len(allowed),
        "not_allowed": len(recipients.not_allowed),
        "suppressed": len(listed),
    }
    if command.channel is SMS:
        length = None if content is None else measure_sms(content)
        record |= {name: getattr(length, name, None) for name in ("encoding", "units", "pages")}
        record["pages_of_all"] = length.pages * len(allowed) if length else None
        saved = None if text is None or kind != "sms" else gsm7_savings(text)([]) * len(allowed)
        record["gsm7_saved_pages"] = saved
    record["characters"] = None if content is None else len(content)
    record["to"] = [mask_recipient(recipient) for recipient in allowed[:_SHOWN]]
    print_record(record, args.output)
    beside = aside(args)
    if len(allowed) > _SHOWN:
        say(f"The first {_SHOWN} recipients are shown.", beside)
    if record.get("gsm7_saved_pages") is not None:
        say(describe_savings(args.encoding, record["gsm7_saved_pages"]), beside)
    if content is None:
        say("The text of a template is not known here, so its pages are not.", beside)
    say("Dry run: nothing was sent.", beside)
