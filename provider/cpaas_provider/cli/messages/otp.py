"""``airflow cpaas otp request`` and ``verify``."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from datetime import timedelta

from cpaas_provider.api.errors import CpaasNotVerifiedError, CpaasUnknownOutcomeError
from cpaas_provider.api.models.otp import OtpOutcome
from cpaas_provider.api.recipients.reader import mask_recipient
from cpaas_provider.cli.messages.requests import run_request
from cpaas_provider.cli.messages.suppressions import open_suppressions
from cpaas_provider.cli.messages.typed import StandardInput, read_recipients
from cpaas_provider.cli.running import FAILED, UNKNOWN, after_sending, connection_of, guarded
from cpaas_provider.cli.terminal import aside, print_record, read_secret, say, warn
from cpaas_provider.sending.requests.phone import OtpRequest
from cpaas_provider.sending.requests.probes import otp_record

_PROBE_SECONDS = 20
"""How long the command reads the records of the recipient if the response was lost."""


@guarded
def cpaas_otp_request(args: Namespace) -> None:
    """Request a passcode, which the service delivers."""
    connection = connection_of(args.conn_id)
    reader = connection.settings.recipient_reader("phone", args.region)
    found = read_recipients([args.recipient], None, StandardInput(), reader)
    if len(found.allowed) + len(found.not_allowed) > 1:
        raise SystemExit("A passcode goes to one recipient. Nothing was sent.")
    if found.not_allowed:
        raise SystemExit("The recipient is not on allowed_recipients of the connection. Nothing was sent.")
    (recipient,) = found.allowed
    request = OtpRequest(recipient, args.length, args.expires_in, channel=args.channel)
    spec = request.build_spec(connection)
    spec.build_call(spec.recipients, "", None).build(connection.settings)
    wait = timedelta(seconds=_PROBE_SECONDS)
    with contextlib.ExitStack() as opened:
        _, suppressions = open_suppressions(opened, args, request.suppression_scope)
        sent = run_request(spec, args, connection, None, suppressions=suppressions, wait=wait)
    result = sent.outcome.accepted[-1].result or {}
    names = ("id", "status_desc", "outcome", "created_datetime", "expires_at")
    with after_sending(f"The service accepted it. Id of the passcode: {result.get('id')}."):
        print_record(
            {"recipient": mask_recipient(recipient), **{name: result.get(name) for name in names}}, args.output
        )
        say(f"To check the code: airflow cpaas otp verify {result.get('id')}", aside(args))


@guarded
def cpaas_otp_verify(args: Namespace) -> None:
    """Check a code that is typed or piped in."""
    connection = connection_of(args.conn_id)
    code = read_secret("Code: ")
    if not code:
        raise SystemExit("There is no code, so nothing was sent and no attempt was used.")
    with connection.make_client() as client:
        try:
            record = client.verify_otp(args.otp_id, code)
        except CpaasNotVerifiedError as error:
            print_record({"id": args.otp_id, "verified": False, "status_desc": None, "outcome": None}, args.output)
            warn(str(error))
            raise SystemExit(FAILED) from None
        except CpaasUnknownOutcomeError as error:
            warn(str(error))
            warn("Outcome unknown: the service may have checked the code, and an attempt may be used.")
            raise SystemExit(UNKNOWN) from None
    facts = otp_record(record)
    verified = record.outcome() in (OtpOutcome.VERIFIED, OtpOutcome.PENDING)
    checked = "The code was accepted." if verified else "The code was not accepted."
    with after_sending(checked):
        print_record(
            {"id": record.id, "verified": verified, **{name: facts[name] for name in ("status_desc", "outcome")}},
            args.output,
        )
    if not verified:
        raise SystemExit(f"The passcode was not verified: its status is {record.status_desc}.")
