"""The recipients in the delivery event that started a run, as rows of a campaign's source."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from cpaas_provider.sources import _validators
from cpaas_provider.sources.base import Table
from cpaas_provider.sources.factory import as_source


class DeliveryEventSource(_validators.Argument):
    """The recipients in the delivery event that started a run (see ``cpaas_provider.assets``).

    After ``campaign_finished``: the recipients whose messages were reported as undelivered. After
    ``messages_failed``: the recipients of this batch whose messages are still undelivered. After ``link_clicked`` and
    ``airtime_succeeded``: the recipients that clicked or got airtime.

    Each row has the columns ``recipient`` (a number with its plus, or an address), ``campaign``, ``outcome``,
    ``status`` and ``reason``. Recipients that the service does not name are left out.

    With ``contacts``, the rows are those of another source whose ``column`` contains one of these recipients. Use it to
    look up an email address by a number, for example. Contacts that cannot be read are left out. All recipients of the
    event are then in memory.

    :param partition_key: ``"{{ dag_run.partition_key }}"``, or the reference of a campaign (templated)
    :param contacts: a path or a source of rows (templated)
    :param column: the column of ``contacts`` with the number or address
    :param region: two-letter region of numbers that are not international, e.g. ``NG`` (templated)
    """

    template_fields = ("partition_key", "contacts", "region")

    def __init__(
        self, partition_key: str, contacts: Any = None, *, column: str = "phone", region: str | None = None
    ) -> None:
        self.partition_key = _validators.text("partition_key", partition_key)
        self.contacts = contacts
        self.column = _validators.text("column", column)
        self.region = _validators.text_or_none("region", region)

    def __str__(self) -> str:
        of = "" if self.contacts is None else " in a list of contacts"
        return f"recipients{of} of the delivery event {self.partition_key}"

    def open(self) -> AbstractContextManager[Table]:
        """Read the database for one reading.

        :raises SourceError: when the key is not one of these assets, the database has no record of the campaign, or it
            cannot be read
        """
        from cpaas_provider.delivery.tracking.event_source import open_contacts, open_recipients

        if self.contacts is None:
            return open_recipients(self.partition_key)
        return open_contacts(self.partition_key, as_source(self.contacts), column=self.column, region=self.region)
