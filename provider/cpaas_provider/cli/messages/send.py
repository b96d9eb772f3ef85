"""``airflow cpaas send-sms`` and ``send-email``."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.recipients.reader import mask_recipient
from cpaas_provider.api.text.sms import count_other_characters, describe_savings, is_gsm7, measure_sms
from cpaas_provider.api.values import no_value_reason
from cpaas_provider.cli.messages.campaign_database import refuse_other_database
from cpaas_provider.cli.messages.newest_try import recorded_try
from cpaas_provider.cli.messages.requests import run_request
from cpaas_provider.cli.messages.suppressions import all_suppressed, open_suppressions
from cpaas_provider.cli.messages.tracking import Tracking
from cpaas_provider.cli.messages.typed import StandardInput, read_file, read_recipients
from cpaas_provider.cli.running import after_sending, connection_of, guarded
from cpaas_provider.cli.terminal import aside, print_record, say
from cpaas_provider.hooks.connection import CpaasConnection
from cpaas_provider.sending.errors import MissingValuesError, NoSenderError, TooManyRecipientsError
from cpaas_provider.sending.requests.message import EMAIL, SMS, MessageKind, MessageRequest, MessageSpec

_SHOWN = 20
_SMS_FIELDS = ("template_id", "channel")
_EMAIL_FIELDS = ("template_id", "subject", "from_name", "reply_to")


def _send(name: str, kind: MessageKind, fields: Sequence[str], args: Namespace) -> None:
    """Send one message.

    :param name: the name of the command
    :param fields: arguments of the command that are fields of the request, too
    """
    stdin = StandardInput()
    if args.idempotency_key is not None and (reason := no_value_reason(args.idempotency_key)):
        raise SystemExit(f"--idempotency-key {reason}. Nothing was sent.")
    if args.resend_unknown and args.idempotency_key is None:
        raise SystemExit("--resend-unknown needs --idempotency-key. Nothing was sent.")
    connection = connection_of(args.conn_id)
    reader = connection.settings.recipient_reader(kind.channel.recipients, getattr(args, "region", None))
    recipients = read_recipients(args.recipients, args.recipients_file, stdin, reader)
    text = _read_content(args, stdin)
    encoding = getattr(args, "encoding", None)
    if encoding is not None and args.channel != "sms":
        raise SystemExit("--encoding is for --channel sms only. Nothing was sent.")
    request = MessageRequest(
        kind,
        [*recipients.allowed, *recipients.not_allowed],
        args.sender_id or None,
        {"content": text, **{field: getattr(args, field) for field in fields}},
        external_ref=args.external_ref or None,
        encoding=encoding,
    )
    spec = _build_spec(request, connection)
    if encoding is not None and text is not None and not is_gsm7(spec.body["content"]):
        unwritable = counted(count_other_characters(text), "character")
        say(f"--encoding gsm7 leaves the text in UCS-2: {unwritable} of it have no form in GSM-7.", aside(args))
    # Refuse a request that breaks the contract before its key is used, and in a dry run.
    spec.build_call(spec.recipients, "cpaas-dry-run", None).build(connection.settings)
    if args.dry_run:
        _dry_run(args, request, spec)
        return
    with contextlib.ExitStack() as opened:
        has_reports = bool(connection.callback_url or connection.webhook_secret) and not args.no_callback
        needs_database = has_reports or args.idempotency_key is not None
        scope = request.suppression_scope
        database, suppressions = open_suppressions(opened, args, scope, needs_database=needs_database)
        if args.idempotency_key is not None and database is not None:
            refuse_other_database(database, "A message with this key could be sent twice, so nothing was sent.")
            opened.enter_context(recorded_try(database))
        tracking = None
        if has_reports and database is not None:
            tracking = Tracking(connection, args, request.operation, name, database)
        sent = run_request(spec, args, connection, database, tracking, suppressions=suppressions)
    result = request.result(sent.outcome)
    with after_sending(
        f"The service accepted it for {counted(sent.recipients, 'recipient')}, references: "
        f"{', '.join(result['references'])}."
    ):
        print_record(
            {
                "id": result["id"],
                "recipients": sent.recipients,
                "not_allowed": sent.outcome.not_allowed,
                "suppressed": sent.outcome.suppressed,
                "charge": result["charge"],
                **{field: result[field] for field in ("balance", *kind.estimate_fields, "created_datetime")},
                "references": result["references"],
                "delivery_reports": tracking.endpoint if tracking else None,
                "sent_by_earlier_run": sent.outcome.earlier,
            },
            args.output,
        )
        if sent.outcome.earlier:
            words = "An earlier run with this --idempotency-key sent it. Nothing was sent again."
            say(f"{words} The content was another one." if sent.changed else words, aside(args))
        elif sent.changed:
            say(
                f"An earlier run sent other content to {sent.changed} of {counted(len(spec.recipients), 'recipient')}. "
                "This content was not sent to them. To send it, use another --idempotency-key.",
                aside(args),
            )
    if sent.partly is not None:
        raise SystemExit(
            f"{sent.partly} The service accepted {sent.recipients} of {counted(len(spec.recipients), 'recipient')}. "
            "Correct the others and send to them alone."
        )


cpaas_send_sms = guarded(partial(_send, "send-sms", SMS, _SMS_FIELDS))
cpaas_send_email = guarded(partial(_send, "send-email", EMAIL, _EMAIL_FIELDS))


def _build_spec(request: MessageRequest, connection: CpaasConnection) -> MessageSpec:
    """Return the message, checked. What a command advises is worded here.

    :raises SystemExit: when the message cannot be sent as it is
    """
    try:
        return request.build_spec(connection)
    except NoSenderError as error:
        advice = f"Give --sender-id, or set {error.option} on the connection."
        raise SystemExit(f"No sender is set. Nothing was sent. {advice}") from None
    except TooManyRecipientsError as error:
        raise SystemExit(
            f"{counted(error.recipients, 'recipient')} are too many for one request: recipients_per_request of the "
            f"connection is {error.most}. Nothing was sent. Send them as a campaign."
        ) from None
    except MissingValuesError as error:
        raise SystemExit(
            f"The text has placeholders ({', '.join(error.placeholders)}), and this command has no values for them. "
            "Recipients would read the placeholders. Nothing was sent. To fill them, send by an operator with "
            "personalisation. If they are no placeholders, set placeholder_format of the connection to other marks."
        ) from None


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


def _dry_run(args: Namespace, request: MessageRequest, spec: MessageSpec) -> None:
    """Show what would be sent."""
    content = spec.body["content"]
    with contextlib.ExitStack() as opened:
        _, suppressions = open_suppressions(opened, args, request.suppression_scope)
        listed = suppressions.find(spec.recipients) if suppressions else {}
    allowed = [recipient for recipient in spec.recipients if recipient not in listed]
    if not allowed:
        raise all_suppressed(len(listed))
    record: dict[str, Any] = {
        "recipients": len(allowed),
        "not_allowed": spec.not_allowed,
        "suppressed": len(listed),
    }
    if request.kind is SMS:
        length = None if content is None else measure_sms(content)
        record |= {name: getattr(length, name, None) for name in ("encoding", "units", "pages")}
        record["pages_of_all"] = length.pages * len(allowed) if length else None
        is_counted = content is not None and request.suppression_scope.channel == "sms"
        # Without personalisation, each recipient has the same number of pages.
        saved = spec.gsm7_saved_pages // len(spec.recipients) * len(allowed)
        record["gsm7_saved_pages"] = saved if is_counted else None
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
