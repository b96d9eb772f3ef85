"""What sending SMS and email have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from cpaas_provider.operators import _summaries as summaries
from cpaas_provider.operators.base import CpaasOperator

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.api.models.messages import Message
    from cpaas_provider.hooks.connection import CpaasConnection

PRIVATE_MESSAGE_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "recipients": summaries.recipients,
    "content": summaries.text,
    "personalisation": summaries.entries,
    "callback": summaries.url,
}


class SendMessageOperator(CpaasOperator):
    """Base of ``SendSmsOperator`` and ``SendEmailOperator``: one request to the recipients that may be reached."""

    private_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = PRIVATE_MESSAGE_FIELDS
    estimate_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of the estimate that go into the result beside charge and balance."""

    text_fields: ClassVar[tuple[str, ...]] = ("content",)
    """Fields in which placeholders may stand."""

    recipients: Any
    personalisation: Any
    sender_id: str | None

    def send(
        self,
        client: CpaasClient,
        connection: CpaasConnection,
        recipients: list[str],
        personalisation: list[Any] | None,
    ) -> Message:
        """Send one message to recipients that are normalised and may be reached."""
        raise NotImplementedError

    def normalise(self, recipient: Any, client: CpaasClient) -> str:
        """Return a recipient as the service wants it, or raise ValueError."""
        raise NotImplementedError

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Send the message, and return ids, counts and cost."""
        everybody = self._unique_recipients(client)
        if len(everybody) > connection.recipients_per_request:
            raise AirflowFailException(
                f"{len(everybody)} recipients are more than one request may name (recipients_per_request is "
                f"{connection.recipients_per_request}). Nothing was sent. A list of this size is a campaign: use the "
                "campaign operator where your version has it, or map this operator over smaller packs."
            )
        allowed = client.settings.allowed
        chosen = [one for one in everybody if allowed is None or allowed.permits(one)]
        skipped = len(everybody) - len(chosen)
        if not chosen:
            raise AirflowSkipException(
                f"None of the {len(everybody)} recipients is on allowed_recipients of the connection. Nothing was sent."
            )
        personalisation = self._personalisation_of(chosen, client)
        self._refuse_empty_placeholders(personalisation or [], len(chosen), connection.placeholder_format)
        message = self.send(client, connection, chosen, personalisation)
        result = {**self._result(message, len(chosen)), "skipped_not_allowed": skipped}
        self.log.info("Accepted as message %s, charge %s, balance %s.", message.id, result["charge"], result["balance"])
        return result

    def _unique_recipients(self, client: CpaasClient) -> list[str]:
        from cpaas_provider.api.models.base import split_list

        given = split_list(self.private("recipients"))
        if not isinstance(given, list) or not given:
            raise AirflowFailException("recipients is empty or no list. Nothing was sent.")
        normalised, bad = [], []
        for place, one in enumerate(given, start=1):
            try:
                normalised.append(self.normalise(one, client))
            except ValueError as error:
                bad.append(f"recipient {place} {error}")
        if bad:
            more = f"; and {len(bad) - 10} more" if len(bad) > 10 else ""
            raise AirflowFailException(f"{'; '.join(bad[:10])}{more}. Nothing was sent.")
        return list(dict.fromkeys(normalised))

    def _personalisation_of(self, chosen: Iterable[str], client: CpaasClient) -> list[Any] | None:
        """Return the entries of those who get the message; entries of others would only be handed around."""
        given = self.private("personalisation")
        if given is None:
            return None
        # A template without native rendering makes a text of a list.
        entries = list(given) if isinstance(given, Iterable) and not isinstance(given, (str, bytes)) else [given]
        if not all(isinstance(entry, Mapping) and isinstance(entry.get("substitutions"), Mapping) for entry in entries):
            raise AirflowFailException(
                "personalisation must be a list of entries with `to` and `substitutions`, the latter a mapping. "
                "Nothing was sent."
            )
        if client.settings.allowed is None:
            return entries
        wanted = set(chosen)
        return [entry for entry in entries if self._named_by(entry, client) in wanted]

    def _refuse_empty_placeholders(self, entries: list[Any], recipients: int, placeholder_format: str) -> None:
        """Keep anybody from reading ``Dear {name}``: whoever has no value for a placeholder gets the placeholder."""
        texts = [text for field in self.text_fields if isinstance(text := self.private(field), str)]
        given = {str(name) for entry in entries for name in entry["substitutions"]}
        used = {name for name in given if any(placeholder_format.replace("name", name) in text for text in texts)}
        complete = sum(1 for entry in entries if used <= set(map(str, entry["substitutions"])))
        if used and complete < recipients:
            raise AirflowFailException(
                f"{recipients - complete} of {recipients} recipients have no value for a placeholder of the text "
                f"({', '.join(sorted(used))}) and would read the placeholder itself. Nothing was sent. Give each of "
                "them an entry in personalisation with every value."
            )

    def _named_by(self, entry: Mapping[str, Any], client: CpaasClient) -> str | None:
        try:
            return self.normalise(entry["to"], client)
        except (KeyError, ValueError):
            raise AirflowFailException(
                "A personalisation entry has no valid recipient in `to`. Nothing was sent."
            ) from None

    def _result(self, message: Message, recipients: int) -> dict[str, Any]:
        estimate = message.meta.estimate if message.meta else None
        return {
            "id": message.id,
            "recipients": recipients,
            "charge": estimate.charge if estimate else None,
            "balance": estimate.available_balance if estimate else None,
            **{field: getattr(estimate, field, None) for field in self.estimate_fields},
            "created_datetime": message.created_datetime.isoformat() if message.created_datetime else None,
        }
