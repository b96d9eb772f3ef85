"""SMS to everybody a source names."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.operators import _arguments as arguments
from cpaas_provider.operators.campaigns import CampaignOperator

if TYPE_CHECKING:
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.campaign.message import Channel


class SmsCampaignOperator(CampaignOperator):
    """Send an SMS to everybody a source names, to each once, whatever ends a try (INTERFACE.md 4.3).

    Returns the report: ``{"reference", "recipients", "sent", "rejected", "unknown_recipients", "not_sent",
    "invalid_rows", "duplicates", ..., "requests", "charge", "balance", "pages", "unknown_references",
    "delivery_reports", "results_path"}``. A task that fails leaves it in the XCom ``report``.

    Fails for good when recipients were rejected or rows bad beyond ``max_failure_ratio``, when a guard stops it, and,
    unless ``on_unknown`` says otherwise, when nobody can find out whether some were sent to; always after everybody
    else was sent to, where that is possible. Skips when there is nobody to send to, and in backfills and late runs.

    :param source: who it is for, see the campaign's arguments (templated)
    :param content: the text, with placeholders such as ``{name}``; required unless ``template_id`` is given (templated)
    :param sender_id: what the phone shows, at most 11 characters when alphanumeric; default: the connection's
        (templated)
    :param template_id: a template kept by the service; name its columns in ``substitutions`` (templated)
    :param recipient_column: the column of the phone numbers
    :param channel: ``sms`` or ``whatsapp``
    :param is_trackable: have links tracked; default: the service's
    :param external_ref: your own reference; default: ours (templated)
    :param callback: URL that receives delivery reports (templated)
    :param skip_dnd: look every number up, and leave out those that must not be disturbed; look-ups cost money
    :param lookup_ttl: for how long a look-up holds, over all campaigns of this installation
    :param on_lookup_error: about a number that cannot be looked up: ``skip``, ``send`` or ``fail``
    :param cpaas_conn_id: the connection to use (templated)
    """

    operation = "send_sms"

    def __init__(
        self,
        *,
        source: Any,
        content: str | None = None,
        sender_id: str | None = None,
        template_id: str | None = None,
        recipient_column: str = "phone",
        channel: Literal["sms", "whatsapp"] = "sms",
        is_trackable: bool | None = None,
        external_ref: str | None = None,
        callback: str | None = None,
        skip_dnd: bool = False,
        lookup_ttl: timedelta | float = timedelta(days=30),
        on_lookup_error: Literal["skip", "send", "fail"] = "skip",
        **kwargs: Any,
    ) -> None:
        super().__init__(source=source, recipient_column=recipient_column, **kwargs)
        self.content = content
        self.sender_id = sender_id
        self.template_id = template_id
        self.sms_channel = self._checked(arguments.one_of("sms", "whatsapp"), channel=channel)
        self.is_trackable = is_trackable
        self.external_ref = external_ref
        self.callback = callback
        arguments.refuse_no_text(self)
        arguments.refuse_unstated_substitutions(self)
        self.skip_dnd = self._checked(arguments.switch, skip_dnd=skip_dnd)
        self.lookup_ttl = self._checked(arguments.span, lookup_ttl=lookup_ttl)
        self.on_lookup_error = self._checked(arguments.one_of("skip", "send", "fail"), on_lookup_error=on_lookup_error)

    @property
    def channel(self) -> Channel:
        """Return how SMS name those they reach."""
        from cpaas_provider.sending.campaign.message import SMS

        return SMS

    def body(self, connection: CpaasConnection) -> dict[str, Any]:
        """Return what is the same for all recipients."""
        sender_id = self.sender_id or connection.sender_id
        if not sender_id:
            raise AirflowFailException("No sender ID: set sender_id on the task or the connection. Nothing was sent.")
        return {
            "sender_id": sender_id,
            "content": self.private("content"),
            "template_id": self.template_id,
            "channel": self.sms_channel,
            "is_trackable": self.is_trackable,
        }
