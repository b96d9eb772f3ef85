"""The stored suppression list, for DAGs, webhooks and programs: recipients that the provider does not send to.

The functions use ``[cpaas] database``, as tasks and the receiver do. They block. Recipients are stored as keyed hashes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from cpaas_provider.api.recipients.msisdn import NumberCheck
    from cpaas_provider.api.recipients.reader import RecipientReader

Reason = Literal["opt_out", "complaint", "hard_bounce", "invalid_number"]
Channel = Literal["all", "sms", "whatsapp", "email"]


def add_suppressions(
    recipients: str | Iterable[str],
    *,
    reason: Reason = "opt_out",
    source: str = "add_suppressions",
    channel: Channel = "all",
    conn_id: str | None = None,
    region: str | None = None,
    number_check: NumberCheck = "valid",
) -> int:
    """Add recipients to the suppression list. Campaigns and single sends leave them out from then on.

    .. code-block:: python

        @task
        def opt_out(message: dict[str, str]) -> None:
            if message["text"].strip().upper() == "STOP":
                add_suppressions(message["from"], source="inbound SMS")

    :param recipients: phone numbers and email addresses, one or more
    :param reason: ``opt_out``, ``complaint``, ``hard_bounce`` or ``invalid_number``
    :param source: where the entry comes from, at most 100 characters. Name no recipient in it
    :param channel: ``sms``, ``whatsapp``, ``email`` or ``all``
    :param conn_id: the connection that the entries hold for. Default: all connections
    :param region: two-letter region of national phone numbers, such as NG
    :param number_check: ``valid`` or ``possible``, as on the connection that sends
    :return: the number of new entries. A recipient that has the same entry already is not counted
    :raises ValueError: when a recipient cannot be read. Nothing was added
    :raises DatabaseError: when the database cannot be used
    """
    from cpaas_provider.database.database import open_database
    from cpaas_provider.database.default_file import ALL_CONNECTIONS
    from cpaas_provider.database.recipients.suppressions import Listed, SuppressionTable

    check_entry(reason=reason, channel=channel, source=source)
    keys = list_keys(recipients, list_reader(region, number_check))
    scope = ALL_CONNECTIONS if conn_id is None else conn_id
    with open_database() as database:
        return SuppressionTable(database).add(Listed(key, reason, source, channel, scope) for key in keys)


def remove_suppressions(
    recipients: str | Iterable[str],
    *,
    reason: Reason | None = None,
    channel: Channel | None = None,
    conn_id: str | None = None,
    region: str | None = None,
    number_check: NumberCheck = "valid",
) -> int:
    """Remove recipients from the suppression list, so that the provider sends to them again.

    :param recipients: phone numbers and email addresses, one or more
    :param reason: remove only entries of this reason
    :param channel: remove only entries of this channel
    :param conn_id: remove only entries of this connection; empty text for entries of all connections
    :param region: two-letter region of national phone numbers, such as NG
    :param number_check: ``valid`` or ``possible``, as on the connection that sends
    :return: the number of entries removed
    :raises ValueError: when a recipient cannot be read. Nothing was removed
    :raises DatabaseError: when the database cannot be used
    """
    from cpaas_provider.database.database import open_database
    from cpaas_provider.database.recipients.suppressions import SuppressionTable

    check_entry(reason=reason, channel=channel)
    keys = list_keys(recipients, list_reader(region, number_check))
    filters = {"reason": reason, "channel": channel, "conn_id": conn_id}
    with open_database() as database:
        return SuppressionTable(database).remove(
            keys, {name: value for name, value in filters.items() if value is not None}
        )


def find_suppressions(
    recipients: str | Iterable[str],
    *,
    conn_id: str,
    channel: Channel = "sms",
    region: str | None = None,
    number_check: NumberCheck = "valid",
) -> list[str | None]:
    """Return for each recipient the reason why a send leaves it out, ``None`` if the send includes it.

    :param recipients: phone numbers and email addresses, one or more
    :param conn_id: the connection of the send
    :param channel: the channel of the send
    :param region: two-letter region of national phone numbers, such as NG
    :param number_check: ``valid`` or ``possible``, as on the connection that sends
    :raises ValueError: when a recipient cannot be read
    :raises DatabaseError: when the database cannot be used
    """
    from cpaas_provider.api.recipients.reader import recipient_key, split_list
    from cpaas_provider.database.database import open_database
    from cpaas_provider.database.recipients.suppressions import SuppressionTable

    check_entry(channel=channel)
    reader, wanted = list_reader(region, number_check), split_list(recipients)
    keys = list_keys(wanted, reader)
    with open_database() as database:
        reasons = SuppressionTable(database).find(keys, conn_id, channel)
    return [reasons.get(recipient_key(reader.read(recipient))) for recipient in wanted]


def check_entry(**values: str | None) -> None:
    """Check ``reason``, ``channel`` and ``source`` of an entry, as far as they are given.

    :raises ValueError: when a value cannot be stored
    """
    from cpaas_provider.database.recipients.suppressions import CHANNELS, MAX_SOURCE, REASONS

    for name, allowed in (("reason", REASONS), ("channel", CHANNELS)):
        if values.get(name) is not None and values[name] not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}.")
    source = values.get("source")
    if source is not None and not (isinstance(source, str) and 0 < len(source) <= MAX_SOURCE):
        raise ValueError(f"source must be text of 1 to {MAX_SOURCE} characters.")


def list_keys(recipients: Any, reader: RecipientReader) -> list[str]:
    """Return recipients in the list's form, each once.

    :raises ValueError: when a recipient cannot be read. The error names its place, not the recipient
    """
    from cpaas_provider.api.recipients.reader import recipient_key

    found = reader.read_list(recipients)
    if found.invalid:
        raise ValueError(f"{found.describe_invalid()}. Nothing was changed.")
    return [recipient_key(recipient) for recipient in found.allowed]


def list_reader(region: str | None = None, number_check: NumberCheck = "valid") -> RecipientReader:
    """Return what reads the recipients of the list: phone numbers and email addresses."""
    from cpaas_provider.api.recipients.msisdn import NumberReader
    from cpaas_provider.api.recipients.reader import RecipientReader

    return RecipientReader("any", NumberReader(region, number_check))
