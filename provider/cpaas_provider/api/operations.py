"""The 14 operations as calls: arguments become the fields of the contract (contract.md 4).

Each function only describes a call. ``CpaasClient`` and ``AsyncCpaasClient`` have a method of the same name and
parameters, which runs the call. Each method raises a ``CpaasError``: ``CpaasInvalidRequestError`` before the request
leaves, ``CpaasNotSentError``, ``CpaasRejectedError`` or ``CpaasUnknownOutcomeError`` afterwards.

Each parameter is the field of its name, so a function has no other local names. ``None`` is never sent: without an
argument, the request does not have the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cpaas_provider.api import endpoints
from cpaas_provider.api.core import Call

if TYPE_CHECKING:
    from cpaas_provider.api.models.airtime import AirtimePurchase
    from cpaas_provider.api.models.contacts import ContactRowRecord, ContactTable
    from cpaas_provider.api.models.email import EmailMessage
    from cpaas_provider.api.models.lookup import PhoneLookup
    from cpaas_provider.api.models.otp import OtpToken
    from cpaas_provider.api.models.sms import SmsMessage

Recipients = str | Iterable[str]
Personalisation = Iterable[Mapping[str, Any]]


def send_sms(
    recipients: Recipients,
    sender_id: str,
    content: str | None = None,
    *,
    template_id: str | None = None,
    personalisation: Personalisation | None = None,
    channel: str | None = None,
    is_trackable: bool | None = None,
    external_ref: str | None = None,
    callback: str | None = None,
) -> Call[SmsMessage]:
    """Send one text to one or more phones (contract.md 4.3).

    :param recipients: numbers in any usual form, as a list or comma-separated; duplicates are dropped
    :param sender_id: what the phone shows as sender; at most 11 characters when alphanumeric
    :param content: the text; required unless ``template_id`` is given
    :param template_id: a template stored at the service
    :param personalisation: entries ``{"to": number, "substitutions": {name: value}}`` for some of the recipients
    :param channel: ``sms`` (the default) or ``whatsapp``
    :param is_trackable: whether links are tracked
    :param external_ref: your own reference
    :param callback: URL that receives delivery reports
    :return: the message; ``meta.estimate`` holds charge, balance, encoding and pages
    """
    return Call(endpoints.SEND_SMS, locals())


def send_email(
    recipients: Recipients,
    sender_id: str,
    content: str | None = None,
    *,
    template_id: str | None = None,
    subject: str | None = None,
    from_name: str | None = None,
    reply_to: str | None = None,
    personalisation: Personalisation | None = None,
    external_ref: str | None = None,
    callback: str | None = None,
) -> Call[EmailMessage]:
    """Send one email to one or more addresses (contract.md 4.2).

    :param recipients: addresses, as a list or comma-separated; duplicates are dropped
    :param sender_id: the sender's address
    :param content: the body; required unless ``template_id`` is given
    :param template_id: a template stored at the service
    :param subject: the subject line
    :param from_name: the sender's name
    :param reply_to: the address replies go to
    :param personalisation: entries ``{"to": address, "substitutions": {name: value}}`` for some of the recipients
    :param external_ref: your own reference
    :param callback: URL that receives delivery reports
    :return: the message; ``meta.estimate`` holds charge and balance
    """
    return Call(endpoints.SEND_EMAIL, locals())


def request_otp(
    recipient: str,
    *,
    length: int | str | None = None,
    expires_in: int | str | None = None,
    token: str | None = None,
    channel: str | None = None,
) -> Call[OtpToken]:
    """Request a one-time passcode, which the service creates and delivers (contract.md 4.4).

    :param recipient: the phone number
    :param length: digits of the code, 4 to 8, as number or text; the service's default is 4
    :param expires_in: minutes the code is valid, 1 to 60, as number or text; the service's default is 15
    :param token: a code of your own; without it the service creates one
    :param channel: ``sms`` or ``whatsapp``
    :return: the passcode's record, which never holds the code
    """
    return Call(endpoints.REQUEST_OTP, locals())


def verify_otp(id: str, token: str) -> Call[OtpToken]:
    """Check a code that a user entered (contract.md 4.5).

    :param id: the passcode's id
    :param token: the code
    :return: the record of the passcode that was accepted
    :raises CpaasNotVerifiedError: when the code is wrong, used, expired or revoked
    """
    return Call(endpoints.VERIFY_OTP, locals())


def get_otp(id: str) -> Call[OtpToken]:
    """Read a passcode's record (contract.md 4.6).

    :param id: the passcode's id
    :raises CpaasNotFoundError: when that id does not exist
    """
    return Call(endpoints.GET_OTP, locals())


def find_otps(recipient: str) -> Call[list[OtpToken]]:
    """Read all passcode records of a phone number (contract.md 4.7).

    :param recipient: the phone number
    :return: the records, in the service's order; an empty list where there is none
    :raises CpaasNotFoundError: when the service does not know that number
    """
    return Call(endpoints.FIND_OTPS, locals())


def revoke_otp(id: str) -> Call[None]:
    """Revoke a passcode (contract.md 4.8 and 10).

    :param id: the passcode's id
    :raises CpaasNotFoundError: when that id does not exist
    """
    return Call(endpoints.REVOKE_OTP, locals())


def buy_airtime(
    network: str,
    amount: float | str,
    recipient: str,
    *,
    callback: str | None = None,
    external_ref: str | None = None,
) -> Call[AirtimePurchase]:
    """Top up a phone (contract.md 4.1; deprecated by the service).

    :param network: Airtel, MTN, Glo, 9mobile or NTEL
    :param amount: at least 50, in the account's currency, as number or text
    :param recipient: the phone number
    :param callback: URL that receives delivery reports
    :param external_ref: your own reference
    :return: the purchase, usually ``pending``; ``meta.charge`` holds the charge and the balance
    :raises CpaasOperationRemovedError: when the service no longer sells airtime
    """
    return Call(endpoints.BUY_AIRTIME, locals())


def get_contact_table() -> Call[ContactTable]:
    """Read the contact table: its id and its typed columns (contract.md 4.9)."""
    return Call(endpoints.GET_CONTACT_TABLE, locals())


def get_contact_row(row_id: str) -> Call[ContactRowRecord]:
    """Read one row, with the table it is in (contract.md 4.10).

    :param row_id: the row's id
    :raises CpaasNotFoundError: when that id does not exist
    """
    return Call(endpoints.GET_CONTACT_ROW, locals())


def create_contact_row(columns: Mapping[str, Any]) -> Call[ContactRowRecord]:
    """Add a row (contract.md 4.11).

    :param columns: cell by column id; a cell that is ``None`` is sent as null
    :return: the new row with its id, and the table it is in
    """
    return Call(endpoints.CREATE_CONTACT_ROW, locals())


def update_contact_row(row_id: str, columns: Mapping[str, Any]) -> Call[ContactRowRecord]:
    """Change cells of a row; the other cells stay as they are (contract.md 4.12 and 10).

    :param row_id: the row's id
    :param columns: cell by column id; ``None`` clears a cell
    :raises CpaasNotFoundError: when that row does not exist
    """
    return Call(endpoints.UPDATE_CONTACT_ROW, locals())


def delete_contact_row(row_id: str) -> Call[None]:
    """Remove a row (contract.md 4.13).

    :param row_id: the row's id
    :raises CpaasNotFoundError: when that id does not exist
    """
    return Call(endpoints.DELETE_CONTACT_ROW, locals())


def lookup_phone(phone: str) -> Call[PhoneLookup]:
    """Look up a number: operator, country, ported, do-not-disturb (contract.md 4.14). Charged by the service.

    :param phone: the phone number
    """
    return Call(endpoints.LOOKUP_PHONE, locals())
