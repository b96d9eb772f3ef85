"""The messages of a campaign: requests that have most of their fields in common.

The first message is checked against the contract as any other. The next ones take its common fields as they are: to
check these again took a quarter of the CPU of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from cpaas_provider.api.core import Call, check_allowlist
from cpaas_provider.api.endpoints import Endpoint
from cpaas_provider.api.http.wire import OutgoingRequest
from cpaas_provider.api.models.messages import Message
from cpaas_provider.api.settings import ClientSettings


class MessageSeries:
    """Builds messages that differ only in their recipients, substitutions, reference and callback URL.

    :param endpoint: ``SEND_SMS`` or ``SEND_EMAIL``
    :param common: the fields that all messages have in common
    :param unambiguous: returns a normalised recipient in a form that can be read in one way only
    """

    def __init__(
        self, endpoint: Endpoint[Message], common: Mapping[str, Any], unambiguous: Callable[[str], str]
    ) -> None:
        self.endpoint = endpoint
        self._common, self._unambiguous = common, unambiguous
        self._checked: _Checked | None = None

    def build(self, message: SeriesMessage, settings: ClientSettings) -> tuple[OutgoingRequest, Mapping[str, Any]]:
        """Return the request of a message, and the fields it was made from.

        :raises CpaasInvalidRequestError: when a field breaks the contract; all such fields are named, no value is shown
        """
        own, checked = message.own_fields(), self._checked
        if checked is not None and checked.settings is settings and checked.has_fields_of(own):
            check_allowlist(self.endpoint, message.recipients, settings)
            fields = {**checked.fields, **own}
            try:
                return checked.request_with(to_json(fields)), fields
            except ValueError:
                # A value that JSON cannot carry: the full check names the operation and no value.
                pass
        request, read = self.call(message).build(settings)
        checked = _Checked(settings, request, read)
        # A message whose own fields the check changes shows nothing about the next one.
        self._checked = checked if checked.is_made_of(own) else None
        return request, read

    def call(self, message: SeriesMessage) -> Call[Message]:
        """Return the call of a message by itself."""
        recipients = [self._unambiguous(one) for one in message.recipients]
        personalisation = None
        if message.substitutions is not None:
            personalisation = _personalisation(recipients, message.substitutions)
        own = {"recipients": recipients, "personalisation": personalisation}
        return Call(
            self.endpoint,
            {**self._common, **own, "external_ref": message.external_ref, "callback": message.callback},
        )


@dataclass(slots=True, eq=False)
class SeriesMessage:
    """One message of a series, as the clients run it.

    :param recipients: normalised, each once
    :param substitutions: the values of the placeholders of each recipient, in the same order; ``None`` without any
    :param external_ref: the reference, not empty
    :param callback: the URL for delivery reports; ``None`` for none
    """

    series: MessageSeries = field(repr=False)
    recipients: Sequence[str] = field(repr=False)
    substitutions: Sequence[Mapping[str, str]] | None = field(repr=False)
    external_ref: str
    callback: str | None = field(repr=False)

    @property
    def endpoint(self) -> Endpoint[Message]:
        """The endpoint of the series."""
        return self.series.endpoint

    @property
    def fields(self) -> Mapping[str, Any]:
        """The arguments of the call, before any check."""
        return self.series.call(self).fields

    def build(self, settings: ClientSettings) -> tuple[OutgoingRequest, Mapping[str, Any]]:
        """Return the request, and the fields it was made from, see ``MessageSeries.build``."""
        return self.series.build(self, settings)

    def own_fields(self) -> dict[str, Any]:
        """Return the fields that differ from those of other messages, as JSON values."""
        fields: dict[str, Any] = {"recipients": ",".join(self.recipients), "external_ref": self.external_ref}
        if self.callback is not None:
            fields["callback"] = self.callback
        if self.substitutions is not None:
            fields["personalisation"] = _personalisation(self.recipients, self.substitutions)
        return fields


_OWN_FIELDS = frozenset({"recipients", "external_ref", "callback", "personalisation"})


class _Checked:
    """A request that was checked against the contract."""

    def __init__(self, settings: ClientSettings, request: OutgoingRequest, fields: Mapping[str, Any]) -> None:
        self.settings, self._request, self.fields = settings, request, dict(fields)
        self._own_names = _OWN_FIELDS & fields.keys()

    def has_fields_of(self, own: Mapping[str, Any]) -> bool:
        """Return whether it has the same fields of its own."""
        return own.keys() == self._own_names

    def is_made_of(self, own: Mapping[str, Any]) -> bool:
        """Return whether it has just these fields of its own, and its body is what is written from its fields."""
        return {name: self.fields[name] for name in self._own_names} == own and self._request.body == to_json(
            self.fields
        )

    def request_with(self, body: bytes) -> OutgoingRequest:
        """Return the request with another body."""
        return OutgoingRequest(self._request.method, self._request.url, self._request.headers, body)


def _personalisation(
    recipients: Sequence[str], substitutions: Sequence[Mapping[str, str]]
) -> list[dict[str, str | Mapping[str, str]]]:
    return [{"to": to, "substitutions": own} for to, own in zip(recipients, substitutions, strict=True)]
