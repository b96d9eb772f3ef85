"""The stored suppression list, for DAGs, webhooks and programs: recipients that the provider does not send to.

The functions use ``[cpaas] database``, as tasks and the receiver do. They block. Recipients are stored as keyed hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from cpaas_provider.database.database import Database

Reason = Literal["opt_out", "complaint", "hard_bounce", "invalid_number"]
Channel = Literal["all", "sms", "whatsapp", "email"]

_NAMED = 10


def add_suppressions(
    recipients: str | Iterable[str],
    *,
    reason: Reason = "opt_out",
    source: str = "add_suppressions",
    channel: Channel = "all",
    conn_id: str | None = None,
    region: str | None = None,
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
    :return: the number of new entries. A recipient that has the same entry already is not counted
    :raises ValueError: when a recipient cannot be read. Nothing was added
    :raises DatabaseError: when the database cannot be used
    """
    from cpaas_provider.database.recipients.suppressions import ALL_CONNECTIONS, Listed, SuppressionTable

    check_entry(reason=reason, channel=channel, source=source)
    wanted = normalise_recipients(recipients, region)
    where = ALL_CONNECTIONS if conn_id is None else conn_id
    with _open() as database:
        return SuppressionTable(database).add(Listed(one, reason, source, channel, where) for one in wanted)


def remove_suppressions(
    recipients: str | Iterable[str],
    *,
    reason: Reason | None = None,
    channel: Channel | None = None,
    conn_id: str | None = None,
    region: str | None = None,
) -> int:
    """Remove recipients from the suppression list, so that they are sent to again.

    :param recipients: phone numbers and email addresses, one or more
    :param reason: remove only entries of this reason
    :param channel: remove only entries of this channel
    :param conn_id: remove only entries of this connection; empty text for entries of all connections
    :param region: two-letter region of national phone numbers, such as NG
    :return: the number of entries removed
    :raises ValueError: when a recipient cannot be read. Nothing was removed
    :raises DatabaseError: when the database cannot be used
    """
    from cpaas_provider.database.recipients.suppressions import SuppressionTable

    check_entry(reason=reason, channel=channel)
    wanted = normalise_recipients(recipients, region)
    given = {"reason": reason, "channel": channel, "conn_id": conn_id}
    with _open() as database:
        return SuppressionTable(database).remove(
            wanted, {name: value for name, value in given.items() if value is not None}
        )


def find_suppressions(
    recipients: str | Iterable[str], *, conn_id: str, channel: Channel = "sms", region: str | None = None
) -> list[str | None]:
    """Return for each recipient why a send leaves it out, ``None`` where it does not.

    :param recipients: phone numbers and email addresses, one or more
    :param conn_id: the connection of the send
    :param channel: the channel of the send
    :param region: two-letter region of national phone numbers, such as NG
    :raises ValueError: when a recipient cannot be read
    :raises DatabaseError: when the database cannot be used
    """
    from cpaas_provider.database.recipients.suppressions import SuppressionTable

    check_entry(channel=channel)
    wanted = normalise_recipients(recipients, region)
    with _open() as database:
        found = SuppressionTable(database).find(wanted, conn_id, channel)
    return [found.get(one) for one in wanted]


def check_entry(**given: str | None) -> None:
    """Refuse values that the list cannot hold.

    :raises ValueError: when one is none of those there are
    """
    from cpaas_provider.database.recipients.suppressions import CHANNELS, MAX_SOURCE, REASONS

    for name, values in (("reason", REASONS), ("channel", CHANNELS)):
        if given.get(name) is not None and given[name] not in values:
            raise ValueError(f"{name} must be one of {', '.join(values)}.")
    source = given.get("source")
    if source is not None and not (isinstance(source, str) and 0 < len(source) <= MAX_SOURCE):
        raise ValueError(f"source must be text of 1 to {MAX_SOURCE} characters.")


def normalise_recipients(recipients: str | Iterable[str], region: str | None = None) -> list[str]:
    """Return recipients as the list knows them: the digits of numbers, and addresses in lower case.

    :raises ValueError: when one cannot be read. The error names its place, not the recipient
    """
    given: Sequence[Any] = [recipients] if isinstance(recipients, str) else list(recipients)
    found, invalid = [], []
    for place, one in enumerate(given, start=1):
        try:
            found.append(normalise_recipient(one, region))
        except ValueError as error:
            invalid.append(f"recipient {place} {error}")
    if invalid:
        more = f"; and {len(invalid) - _NAMED} more" if len(invalid) > _NAMED else ""
        raise ValueError(f"{'; '.join(invalid[:_NAMED])}{more}. Nothing was changed.")
    return found


def normalise_recipient(value: Any, region: str | None = None) -> str:
    """Return one recipient as the list knows it.

    :raises ValueError: when it is neither a phone number nor an email address
    """
    if isinstance(value, str) and "@" in value:
        from cpaas_provider.api.recipients.email_address import normalise_email

        return normalise_email(value).lower()
    from cpaas_provider.api.recipients.msisdn import normalise_msisdn

    return normalise_msisdn(value, region)


def _open() -> Database:
    from cpaas_provider.database.database import open_database

    return open_database()
