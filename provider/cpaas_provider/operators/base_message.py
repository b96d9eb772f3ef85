"""The base of the operators that send one SMS or email."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from cpaas_provider.operators import _masking as masking
from cpaas_provider.operators.base_send import SendOperator

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.api.models.messages import Message
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.spec import Outcome, SendSpec

MASKED_MESSAGE_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "recipients": masking.recipients,
    "content": masking.text,
    "personalisation": masking.entries,
    "callback": masking.url,
}


class SendMessageOperator(SendOperator):
    """Base of ``SendSmsOperator`` and ``SendEmailOperator``: one request to the allowed recipients."""

    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = MASKED_MESSAGE_FIELDS
    operation: ClassVar[str]
    estimate_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of the estimate that go into the result beside charge and balance."""

    body_fields: ClassVar[tuple[str, ...]]
    """Fields of the body; an unknown request can only be sent again with the same body."""

    text_fields: ClassVar[tuple[str, ...]] = ("content",)
    """Fields that may have placeholders."""

    recipients: Any
    personalisation: Any
    sender_id: str | None
    external_ref: str | None

    def sender(self, connection: CpaasConnection) -> str:
        """Return the sender, or fail the task."""
        raise NotImplementedError

    def send(
        self,
        client: CpaasClient,
        connection: CpaasConnection,
        recipients: list[str],
        personalisation: list[Any] | None,
        reference: str,
    ) -> Message:
        """Send one message to normalised, allowed recipients, under a reference."""
        raise NotImplementedError

    def log_estimate(self, connection: CpaasConnection, recipients: int, personalisation: list[Any]) -> None:
        """Log the size of a send before it begins."""
        raise NotImplementedError

    def normalise(self, recipient: Any, client: CpaasClient) -> str:
        """Return a recipient as the service wants it, or raise ValueError."""
        raise NotImplementedError

    def build_request(self, client: CpaasClient, connection: CpaasConnection) -> SendSpec:
        """Return the one message to all allowed recipients."""
        from cpaas_provider.api.amounts import counted
        from cpaas_provider.sending.spec import SendSpec

        self._refuse_other_than_text()
        recipients = self._unique_recipients(client)
        if len(recipients) > connection.recipients_per_request:
            raise AirflowFailException(
                f"{len(recipients)} recipients are too many for one request: recipients_per_request is "
                f"{connection.recipients_per_request}. Nothing was sent. Send a list of this size as a campaign, with "
                "SmsCampaignOperator or EmailCampaignOperator."
            )
        allowed = client.settings.allowed
        chosen = [one for one in recipients if allowed is None or allowed.allows(one)]
        self._skipped_count = len(recipients) - len(chosen)
        if not chosen:
            raise AirflowSkipException(
                f"None of {counted(len(recipients), 'recipient')} is on allowed_recipients of the connection. "
                "Nothing was sent."
            )
        personal = self._personalisation_by_recipient(recipients, client)
        if personal is not None:
            personal = {one: personal[one] for one in chosen if one in personal}
        self._refuse_empty_placeholders(list((personal or {}).values()), len(chosen), connection.placeholder_format)
        return SendSpec(
            operation=self.operation,
            recipients=tuple(chosen),
            body={"sender_id": self.sender(connection), **{name: self.rendered(name) for name in self.body_fields}},
            personal=personal and {one: entry["substitutions"] for one, entry in personal.items()},
            preflight=partial(self.log_estimate, connection, len(chosen), list((personal or {}).values())),
            send=partial(self._perform, client, connection, personal),
            evidence=self.evidence(connection),
        )

    def result(self, client: CpaasClient, outcome: Outcome) -> dict[str, Any]:
        """Return ids, counts and cost."""
        from cpaas_provider.api.amounts import total

        messages = [entry.result or {} for entry in outcome.settled]
        latest = messages[-1] if messages else {}
        names = ("balance", *self.estimate_fields, "created_datetime")
        return {
            "id": latest.get("id"),
            "recipients": outcome.sent,
            "charge": total(message.get("charge") for message in messages),
            **{name: latest.get(name) for name in names},
            "skipped_not_allowed": self._skipped_count,
            "references": [entry.reference for entry in outcome.settled],
        }

    def _perform(
        self,
        client: CpaasClient,
        connection: CpaasConnection,
        personal: Mapping[str, Any] | None,
        recipients: tuple[str, ...],
        reference: str,
        again: bool,
    ) -> dict[str, Any]:
        entries = None if personal is None else [personal[one] for one in recipients if one in personal]
        message = self.send(client, connection, list(recipients), entries, reference)
        estimate = message.meta.estimate if message.meta else None
        result = {
            "id": message.id,
            "charge": estimate.charge if estimate else None,
            "balance": estimate.available_balance if estimate else None,
            **{field: getattr(estimate, field, None) for field in self.estimate_fields},
            "created_datetime": message.created_datetime.isoformat() if message.created_datetime else None,
        }
        if message.rejection:
            self._refuse_partial(message, result, recipients)
        return result

    def _refuse_partial(self, message: Message, result: dict[str, Any], recipients: tuple[str, ...]) -> None:
        """Raise where the service names recipients that the message does not go to."""
        from cpaas_provider.sending.errors import PartlyRejectedError

        named = {one.lower() for one in message.rejected_recipients}
        rejected = [one for one in recipients if one.lower() in named]
        if not rejected:
            self.log.warning("The service names no rejected recipient, so all count as accepted. %s", message.rejection)
            return
        raise PartlyRejectedError(
            f"{message.rejection} The service accepted {len(recipients) - len(rejected)} of {len(recipients)} "
            f"recipients as message {message.id}. They are not sent to again. Correct or remove the rejected "
            "recipients, and clear the task. It sends to the rejected recipients only.",
            str(message.rejection),
            result,
            rejected,
        )

    def _refuse_other_than_text(self) -> None:
        """Refuse what native rendering made of a text: a number of digits, a list of brackets."""
        for name in self.text_fields:
            if not isinstance(self.rendered(name), (str, type(None))):
                raise AirflowFailException(f"{name} must be text. Nothing was sent.")

    def _unique_recipients(self, client: CpaasClient) -> list[str]:
        from cpaas_provider.api.models.base import split_list

        given = split_list(self.rendered("recipients"))
        if not isinstance(given, list) or not given:
            raise AirflowFailException("recipients is empty or not a list. Nothing was sent.")
        normalised, bad = [], []
        for place, one in enumerate(given, start=1):
            try:
                normalised.append(self.normalise(one, client))
            except ValueError as error:
                bad.append(f"recipient {place} {error}")
        if bad:
            more = f"; and {len(bad) - 10} more" if len(bad) > 10 else ""
            raise AirflowFailException(f"{'; '.join(bad[:10])}{more}. Nothing was sent.")
        # Of an address in several spellings the first is written to, as in a campaign.
        return list({self._known_by(one): one for one in reversed(normalised)}.values())[::-1]

    def _known_by(self, recipient: str) -> str:
        from cpaas_provider.sending.hashing import known_by

        return known_by(self.operation, recipient)

    def _personalisation_by_recipient(self, recipients: Iterable[str], client: CpaasClient) -> dict[str, Any] | None:
        """Return the entries by the recipient they name, which must be one of ``recipients``."""
        given = self.rendered("personalisation")
        if given is None:
            return None
        # A template without native rendering makes a text of a list.
        entries = list(given) if isinstance(given, Iterable) and not isinstance(given, (str, bytes)) else [given]
        if not all(isinstance(entry, Mapping) and isinstance(entry.get("substitutions"), Mapping) for entry in entries):
            raise AirflowFailException(
                "personalisation must be a list of entries with `to` and `substitutions`, the latter a mapping. "
                "Nothing was sent."
            )
        spelt = {self._known_by(one): one for one in recipients}
        named = {self._known_by(self._entry_recipient(entry, client)): entry for entry in entries}
        if len(named) < len(entries):
            raise AirflowFailException("personalisation names a recipient twice. Nothing was sent.")
        if not named.keys() <= spelt.keys():
            raise AirflowFailException("personalisation names a recipient that is not in recipients. Nothing was sent.")
        return {spelt[one]: {**entry, "to": spelt[one]} for one, entry in named.items()}

    def _refuse_empty_placeholders(self, entries: list[Any], recipients: int, placeholder_format: str) -> None:
        """Refuse to send ``Dear {name}``: a recipient without a value would read the placeholder."""
        from cpaas_provider.api.amounts import counted

        texts = [text for field in self.text_fields if isinstance(text := self.rendered(field), str)]
        given = {str(name) for entry in entries for name in entry["substitutions"]}
        used = {name for name in given if any(placeholder_format.replace("name", name) in text for text in texts)}
        complete = sum(1 for entry in entries if used <= set(map(str, entry["substitutions"])))
        if used and complete < recipients:
            raise AirflowFailException(
                f"personalisation has no value of a placeholder ({', '.join(sorted(used))}) for "
                f"{recipients - complete} of {counted(recipients, 'recipient')}. They would read the placeholder. "
                "Nothing was sent. Give each recipient an entry in personalisation with every value."
            )

    def _entry_recipient(self, entry: Mapping[str, Any], client: CpaasClient) -> str:
        try:
            return self.normalise(entry["to"], client)
        except (KeyError, ValueError):
            raise AirflowFailException(
                "A personalisation entry has no valid recipient in `to`. Nothing was sent."
            ) from None
