"""Email to everybody a source names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.operators import _arguments as arguments
from cpaas_provider.operators import _summaries as summaries
from cpaas_provider.operators.campaigns import PRIVATE_CAMPAIGN_FIELDS, CampaignOperator

if TYPE_CHECKING:
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.campaign.message import Channel


class EmailCampaignOperator(CampaignOperator):
    """Send an email to everybody a source names, to each once, whatever ends a try (INTERFACE.md 4.2).

    Returns, fails and skips as ``SmsCampaignOperator`` does; of an email there are no pages.

    :param source: who it is for, see the campaign's arguments (templated)
    :param content: the body, with placeholders such as ``{name}``; required unless ``template_id`` is given (templated)
    :param sender_id: the sender's address; default: the connection's ``email_sender_id`` (templated)
    :param template_id: a template kept by the service; name its columns in ``substitutions`` (templated)
    :param recipient_column: the column of the addresses
    :param subject: the subject line, with placeholders, too (templated)
    :param from_name: the sender's name (templated)
    :param reply_to: the address replies go to (templated)
    :param external_ref: your own reference; default: ours (templated)
    :param callback: URL that receives delivery reports (templated)
    :param cpaas_conn_id: the connection to use (templated)
    """

    operation = "send_email"
    template_fields = (*CampaignOperator.template_fields, "subject", "from_name", "reply_to")
    private_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **PRIVATE_CAMPAIGN_FIELDS,
        "subject": summaries.text,
        "reply_to": summaries.recipient,
    }
    text_fields: ClassVar[tuple[str, ...]] = ("subject", "content")

    def __init__(
        self,
        *,
        source: Any,
        content: str | None = None,
        sender_id: str | None = None,
        template_id: str | None = None,
        recipient_column: str = "email",
        subject: str | None = None,
        from_name: str | None = None,
        reply_to: str | None = None,
        external_ref: str | None = None,
        callback: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(source=source, recipient_column=recipient_column, **kwargs)
        self.content = content
        self.sender_id = sender_id
        self.template_id = template_id
        self.subject = subject
        self.from_name = from_name
        self.reply_to = reply_to
        self.external_ref = external_ref
        self.callback = callback
        arguments.refuse_no_text(self)
        arguments.refuse_unstated_substitutions(self)

    @property
    def channel(self) -> Channel:
        """Return how emails name those they reach."""
        from cpaas_provider.sending.campaign.message import EMAIL

        return EMAIL

    def body(self, connection: CpaasConnection) -> dict[str, Any]:
        """Return what is the same for all recipients."""
        sender_id = self.sender_id or connection.email_sender_id
        if not sender_id:
            raise AirflowFailException(
                "No sender address: set sender_id on the task or email_sender_id on the connection. Nothing was sent."
            )
        return {
            "sender_id": sender_id,
            "content": self.private("content"),
            "template_id": self.template_id,
            "subject": self.private("subject"),
            "from_name": self.from_name,
            "reply_to": self.private("reply_to"),
        }
