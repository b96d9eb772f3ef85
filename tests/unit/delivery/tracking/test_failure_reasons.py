"""Which reasons of bounces and undelivered SMS are permanent failures of the recipient, as the field writes them."""

from __future__ import annotations

from typing import Any

import pytest

from cpaas_provider.delivery.reports import DeliveryStatus, Report, read_report
from cpaas_provider.delivery.tracking.permanent_failures.reasons import PermanentFailures
from tests.unit.delivery.tracking import gateway_reasons

INVALID_NUMBERS = (
    "Unknown subscriber",
    "UNKNOWN_SUBSCRIBER",
    "unknownSubscriber",
    "EC_UNKNOWN_SUBSCRIBER",
    "Error 1: Unknown Subscriber",
    "1 - Unknown subscriber",
    "Undelivered (unknown subscriber)",
    "Permanent error; subscriber unknown",
    "Unknown subscriber.",
    "INVALID NUMBER",
    "Invalid MSISDN",
    "invalidMsisdn",
    "Invalid phone number: +234 803 000 0001",
    "Invalid destination address",
    "Invalid destination",
    "The number does not exist.",
    "Number 2348030000001 does not exist",
    "Number not in service",
    "The number is not in service",
    "Unallocated number",
    "Unallocated (unassigned) number",
    "Q.850 cause 1: unallocated number",
    "Unassigned number",
    "Number is not assigned",
    "number disconnected",
    "Delivery failed: non-existent number / unknown number",
    "The phone number does not exist",
    "Recipient number doesn't exist",
    "Invalid recipient number",
    "Number is invalid",
    "Unknown subscriber; MAP error 1",
    "Unknown subscriber (GSM error 01)",
    "Unknown subscriber err:001",
    "RP cause 30: unknown subscriber",
    "error 21211: invalid phone number",
    "Error 2348030000001: invalid number",
    "Invalid number 2348030000001",
    "Invalid number +234 803 000 0001",
    "Invalid number (0803) 000-0001",
    "21211 invalid phone number",
    "Invalid number 1",
)
VALID_NUMBERS = (
    None,
    "",
    "Unknown subscriber @retry",
    "invalid number; map error 27",
    "Invalid number; MAP_ERROR_27",
    "invalid number (mapError 27)",
    "MAP error 27: invalid number",
    "GSM error 8: unknown subscriber",
    "Invalid number, RP cause 38",
    "RP cause 28: invalid number",
    "Invalid number. Q.850 cause 41",
    "Invalid number; Q.850 cause=38",
    "Unknown subscriber, error 34",
    "Unknown subscriber err:027",
    "Unknown subscriber (code 21)",
    "Invalid number; reason=27",
    "invalid number 27",
    "Invalid number (27)",
    "Invalid number - 027",
    "Invalid number, 27, 2348030000001",
    "1, invalid number, 27",
    "Invalid number; status 8",
    "Unknown subscriber; cause 1; error 27",
    "invalid number of segments",
    "Invalid number of parts",
    "Invalid number format of sender",
    "Sender ID is an invalid number",
    "Sender: invalid number",
    "unknown subscriber state (SS7 timeout)",
    "Unknown subscriber, SS7 timeout",
    "SS7 error: unknown subscriber",
    "Unknown subscriber: roaming not allowed",
    "Temporary failure: unknown subscriber, try again",
    "Unknown subscriber. Try again later.",
    "Transient: unknown subscriber",
    "Not an unknown subscriber",
    "Absent subscriber",
    "Absent subscriber for SM: IMSI detached",
    "absentSubscriberSM",
    "Subscriber absent, unknown subscriber location",
    "Subscriber busy for MT-SMS",
    "Handset memory full",
    "Memory capacity exceeded",
    "SIM storage full",
    "Call barred",
    "Call barred by operator determined barring",
    "Teleservice not provisioned",
    "Facility not supported",
    "System failure",
    "Unexpected data value",
    "Network congestion",
    "Message queue full",
    "ESME_RTHROTTLED: throttling error",
    "ESME_RSYSERR",
    "Phone switched off",
    "Handset unreachable",
    "Validity period expired",
    "EXPIRED",
    "REJECTD",
    "UNDELIV",
    "id:0123 sub:001 dlvrd:000 submit date:2605011200 done date:2605011203 stat:UNDELIV err:001 text:",
    "Blocked by the operator",
    "Destination on DND",
    "Number on the do-not-disturb list",
    "Spam filter of the carrier",
    "Content blocked: invalid number in text",
    "No route to destination",
    "Route unavailable: number not in service area",
    "Number not in service area",
    "Invalid destination port",
    "Invalid destination TON",
    "Insufficient credit",
    "Daily quota of the number exceeded",
    "Message too long: invalid number of pages",
    "Unknown number of attempts",
    "Unknown error",
    "Failed",
    "Undeliverable",
    "HLR unavailable: unknown subscriber",
    "SRI failed; unknown subscriber",
    "SMSC error: unknown subscriber",
    "Gateway error - unknown subscriber",
    "System failure: unknown subscriber",
    "Equipment failure. Unknown subscriber",
    "Internal error; invalid MSISDN",
    "Unexpected data value: unknown subscriber",
    "Service unavailable: unknown subscriber",
    "Connection refused; unknown subscriber",
    "Under maintenance: unknown subscriber",
    "Number ported: unknown subscriber",
    "Teleservice not provisioned: unknown subscriber",
    "Validity period expired; unknown subscriber",
    "Delayed: unknown subscriber",
    "Pending - unknown subscriber",
    "Invalid destination: operator not supported",
    "Invalid destination. Country not enabled for the account",
    "Destination not allowed; invalid destination",
    "Not reachable: number not in service",
    "No coverage: number not in service",
    "Suspended: number not in service",
    "Do not disturb: invalid number",
    "Opted out, invalid number",
    "Filtered by the carrier; invalid number",
    "Fraud suspected: invalid number",
    "Source address: invalid number",
    "Originator: unknown number",
    "Insufficient balance; invalid number",
    "Account disabled: unknown number",
    "Unauthorized: invalid number",
    "Message too long; invalid number",
    "Duplicate; invalid number",
    "Template: invalid number",
    "Vor\u00fcbergehend nicht erreichbar: unknown subscriber",
    "Apagado temporalmente: unknown subscriber",
)
HARD_BOUNCES = (
    "550 5.1.1 User unknown",
    "550-5.1.1 The email account that you tried to reach does not exist. Please try double-checking the address.",
    "smtp; 550 5.1.1 <cy@example.com>: Recipient address rejected: User unknown in virtual mailbox table",
    "host mx1.example.com[185.1.1.7] said: 550 5.1.1 <cy@example.com>: Recipient address rejected",
    "550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup",
    "5.1.3 Bad destination mailbox address syntax",
    "553 5.1.3 The recipient address is not a valid address",
    "551 5.1.6 Recipient has moved",
    "dsn=5.1.1, status=bounced",
    "#5.1.1",
    "550 #5.1.1 rejected",
    "Bad destination mailbox address (5.1.1)",
    "Status: 5.1.1",
    "550 No such user here",
    "550 No such user",
    "550 user unknown",
    "550 cy@example.com... User unknown",
    "550 <cy@example.com> User unknown",
    "554 delivery error: this user doesn't exist: no such user (cy@example.com)",
    "550 5.1.0 <cy@example.com>: unknown user",
    "550 Requested action not taken: mailbox not found",
    "550 5.0.0 mailbox does not exist",
    "Mailbox cy@example.com does not exist",
    "The email address does not exist.",
    "550 Invalid recipient <cy@example.com>",
    "550 Unknown recipient",
    "550 Recipient unknown",
    "No mailbox by that name",
    "User unknown in local recipient table",
    "hard_bounce",
    "Hard bounce: user not found",
    "554 This user doesn't exist",
    "550 5.1.1 Requested action not taken: mailbox unavailable",
    "550 User unknown (in reply to RCPT TO command)",
)
VALID_ADDRESSES = (
    None,
    "",
    "User unknown, SMTP error 450.",
    "User unknown (reply: 421.)",
    "user unknown_450",
    "550 User unknown <cy@example.com>:greylisted",
    "550 5.1.1 <cy@example.com>...Greylisted; user unknown",
    "User unknown https://example.com/help;temporarily-disabled",
    "User unknown; mailbox-full - gsmtp",
    "connect to mx1[185.1.1.7]",
    "connect to mx1[185.1.1.7]:25: Connection refused",
    "connect to 5.1.1.7",
    "host 185.5.1.1 refused the connection",
    "Queued as 5.1.1A7",
    "message 15.1.1 is not accepted",
    "Postfix 5.1.1 rejected the message",
    "software version: 5.1.1",
    "mx-5.1.1.example.com is unknown",
    "Message-ID <5.1.1@example.com> rejected",
    "452 4.2.2 mailbox full",
    "450 4.1.1 <cy@example.com>: Recipient address rejected: unverified address",
    "450 4.1.1 user unknown",
    "450 User unknown",
    "4.1.1 user unknown",
    "421 4.7.0 Try again later, closing connection",
    "451 4.3.0 Temporary lookup failure",
    "451 Greylisted, user unknown until you retry",
    "552 5.2.2 Mailbox full",
    "552 5.2.2 Over quota: no such user quota",
    "550 5.2.1 The user you are trying to contact is receiving mail too quickly",
    "550 5.3.4 Message too big for system",
    "550 5.4.1 Recipient address rejected: Access denied",
    "554 5.4.14 Hop count exceeded, possible mail loop",
    "5.4.4 Unable to route: host not found",
    "550 5.6.0 Invalid message content",
    "550 5.7.1 Relaying denied",
    "550 5.7.1 Message rejected as spam: no such user",
    "550 5.7.26 Unauthenticated email is not accepted: DMARC policy",
    "550 5.7.1 Client host [203.0.113.5.1.1] blocked",
    "550 5.1.1 Rejected by policy of the recipient's server",
    "550 5.1.1 Mailbox full",
    "550 5.1.2 Host unknown",
    "550 5.1.8 Sender address rejected: user unknown",
    "550 5.1.7 Bad sender: no such user",
    "550 Sender verify failed: no such user",
    "550 5.1.1 user unknown; 550 5.7.1 blocked by reputation",
    "550 5.1.1 first try; 451 4.7.1 second try",
    "5.2.2 user unknown",
    "Mailbox full",
    "Soft bounce: user unknown",
    "DNS timeout: mailbox not found",
    "Unknown user agent",
    "User unknown to the spam filter",
    "invalid recipient count",
    "Too many invalid recipients",
    "Rejected by the recipient",
    "Mailbox unavailable",
    "The mailbox cannot be reached right now",
    "bounced",
    "550 5.1.1 Connection refused",
    "550 5.1.1 Internal error looking up the user",
    "550 5.1.1 RBL: your address is listed, user unknown",
    "550 5.1.1 Mailbox is disabled for non-payment",
    "550 5.1.1 User unknown (in reply to MAIL FROM command)",
    "550 Administrative prohibition; unknown user",
    "550 Authentication required; user unknown",
    "550 Relay not permitted, user unknown",
    "550 Relaying denied. No such user",
    "550 User unknown. Service unavailable",
    "Insufficient credit: invalid recipient",
    "Unauthorized: invalid recipient",
    "API account: no such account",
    "LDAP unavailable: no such user",
    "User not found (lookup failure)",
    "Directory not responding. User unknown",
    "Database error, account does not exist",
    "Message too large: unknown user",
    "Message size: invalid recipient",
    "Delayed. No such user",
    "Suspended: user unknown",
    "Caixa cheia: user unknown",
    "Bo\u00eete pleine: user unknown",
    "Buz\u00f3n lleno: user unknown",
    "Postfach voll: user unknown",
)


def is_listed(kind: str, reason: str | None) -> bool:
    status = {"sms": DeliveryStatus.UNDELIVERED, "email": DeliveryStatus.BOUNCED}[kind]
    return PermanentFailures().reports_one(Report(status, status.name.lower(), reason=reason, kind=kind), None)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [*(("sms", reason) for reason in INVALID_NUMBERS), *(("email", reason) for reason in HARD_BOUNCES)],
)
def test_reason_about_the_recipient_is_listed(kind: str, reason: str) -> None:
    assert is_listed(kind, reason)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [*(("sms", reason) for reason in VALID_NUMBERS), *(("email", reason) for reason in VALID_ADDRESSES)],
)
def test_reason_that_is_not_about_the_recipient_is_not_listed(kind: str, reason: str | None) -> None:
    assert not is_listed(kind, reason)


FAILED = {"event": "text.undelivered", "recipient": "2348030000001", "reason": "Unknown subscriber"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (FAILED, True),
        ({**FAILED, "description": "Delivery failed", "error": None, "status": "failed"}, True),
        ({**FAILED, "description": "Network congestion"}, False),
        ({**FAILED, "error": "Network congestion"}, False),
        ({**FAILED, "error": {"code": "absent"}}, False),
        ({**FAILED, "status_desc": "Will retry"}, False),
        ({**FAILED, "status": "expired"}, False),
        ({**FAILED, "status": {"text": "failed", "description": "Absent subscriber"}}, False),
        ({"event": "text.undelivered", "data": FAILED, "reason": "Network congestion"}, False),
        ({"status": "success", "data": FAILED, "event": "text.undelivered"}, True),
        ({**FAILED, "reason": f"Unknown subscriber. {'Delivery failed. ' * 30}Network congestion"}, False),
    ],
)
def test_other_cause_anywhere_in_a_report_lists_no_recipient(body: dict[str, Any], expected: bool) -> None:
    """Only one text is stored as the reason, and a long one is cut."""
    assert PermanentFailures().reports_one(read_report(body), None) is expected


@pytest.mark.parametrize("kind", ["sms", "email"])
@pytest.mark.parametrize("reason", ["5.1.1", "unknown subscriber", "no such user"])
def test_reason_of_another_kind_is_not_listed(kind: str, reason: str) -> None:
    assert is_listed(kind, reason) is ((kind == "sms") is (reason == "unknown subscriber"))


@pytest.mark.parametrize("piece", ["(", "[", " 550 ", "5.1.1", "-", "\n", "'", "___", " - ", "a", "@", "<", "status "])
def test_long_reason_is_read_in_time(piece: str) -> None:

    reason = (piece * 300)[:300]
    assert is_listed("email", reason) in (True, False)


def _cases(*tables: tuple[str, dict[str, list[str]]]) -> list[tuple[str, str]]:
    return [(kind, reason) for kind, table in tables for reasons in table.values() for reason in reasons]


PERMANENT = _cases(("sms", gateway_reasons.INVALID_NUMBERS), ("email", gateway_reasons.HARD_BOUNCES))
OTHER = _cases(("sms", gateway_reasons.OTHER_SMS), ("email", gateway_reasons.OTHER_EMAIL))


@pytest.mark.parametrize(("kind", "reason"), PERMANENT)
def test_reason_of_a_gateway_for_a_missing_recipient_is_listed(kind: str, reason: str) -> None:
    assert is_listed(kind, reason)


@pytest.mark.parametrize(("kind", "reason"), OTHER)
def test_reason_of_a_gateway_for_any_other_cause_is_not_listed(kind: str, reason: str) -> None:
    assert not is_listed(kind, reason)


def test_gateways_have_at_least_250_reasons() -> None:
    assert len(set(PERMANENT + OTHER)) >= 250


@pytest.mark.parametrize("unknown", ["carrier", "awaiting", "4.7.1", "Carrier says:", "(held)", "; parser"])
def test_unknown_words_anywhere_in_a_reason_list_no_recipient(unknown: str) -> None:
    """Before, between and after all words of every reason that lists a recipient."""
    listed = [
        *PERMANENT,
        *(("sms", reason) for reason in INVALID_NUMBERS),
        *(("email", reason) for reason in HARD_BOUNCES),
    ]
    # The name and the id that a server adds are removed with what is inside of them.
    for kind, reason in (
        (kind, reason) for kind, reason in listed if " said: " not in reason and "gsmtp" not in reason
    ):
        words = reason.split(" ")
        for position in range(len(words) + 1):
            changed = " ".join((*words[:position], unknown, *words[position:]))
            assert not is_listed(kind, changed), changed
