"""The messages of a campaign: requests that have most of their fields in common.

The first message is checked against the contract as any other. The next ones take its common fields as they are: to
check these again took a quarter of the CPU of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace
from pydantic_core import to_json

from cpaas_provider.api.core import Call, check_allowlist
from cpaas_provider.api.endpoints import Endpoint
from cpaas_provider.api.http.wire import OutgoingRequest
from cpaas_provider.api.models.messages import Message
from cpaas_provider.api.settings import ClientSettings


class MessageSeries:
    """Builds messages that differ only in their recipients, substitutions, reference and callback URL.

    A message may take the common fields of an earlier one only if the check left the own fields of that one as they
    were given: then its recipients were normalised, and each was named once.

    :param endpoint: ``SEND_SMS`` or ``SEND_EMAIL``
    :param common: the fields that all messages have in common
    :param as_read: returns the text of a recipient that was read, so that the check does not read it again
    """

    def __init__(self, endpoint: Endpoint[Message], common: Mapping[str, Any], as_read: Callable[[str], str]) -> None:
        self.endpoint = endpoint
        self._common, self._as_read = dict(common), as_read
        self._checked: _Checked | None = None

    def build(self, message: SeriesMessage, settings: ClientSettings) -> tuple[OutgoingRequest, Mapping[str, Any]]:
        """Return the request of a message, and the fields it was made from.

        :raises CpaasInvalidRequestError: when a field breaks the contract; all such fields are named, no value is shown
        """
        own = message.own_fields()
        if (checked := self._checked) is not None and checked.settings is settings and own.keys() == checked.own_names:
            check_allowlist(self.endpoint, message.recipients, settings)
            fields = {**checked.fields, **own}
            # Without a body, the full check below names the operation. It is not in an except block, because the
            # error of the encoder quotes the value, and would be the context of ours.
            if (body := _body(fields)) is not None:
                return replace(checked.request, body=body), fields
        request, checked_fields = self.call(message).build(settings)
        own_names = _OWN_FIELDS & checked_fields.keys()
        is_unchanged = own == {name: checked_fields[name] for name in own_names}
        self._checked = _Checked(settings, request, checked_fields, own_names) if is_unchanged else None
        return request, checked_fields

    def call(self, message: SeriesMessage) -> Call[Message]:
        """Return the call of a message by itself, which is checked in full."""
        recipients = [self._as_read(recipient) for recipient in message.recipients]
        own = {
            "recipients": recipients,
            "personalisation": _personalisation(recipients, message.substitutions),
            "external_ref": message.external_ref,
            "callback": message.callback,
        }
        return Call(self.endpoint, {**self._common, **own})


@dataclass(slots=True, eq=False)
class SeriesMessage:
    """One message of a series, which the clients run like a call.

    :param recipients: normalised, each once
    :param substitutions: the values of the placeholders of each recipient, in the same order; ``None`` without any
    :param external_ref: the reference, not empty
    :param callback: the URL for delivery reports; ``None`` for none
    """

    series: MessageSeries = field(repr=False)
    recipients: Sequence[str] = field(repr=False)
    substitutions: Sequence[Mapping[str, str]] | None = field(repr=False)
    external_ref: str = field(repr=False)
    callback: str | None = field(repr=False)

    @property
    def endpoint(self) -> Endpoint[Message]:
        """The endpoint of the series."""
        return self.series.endpoint

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


class _Checked(NamedTuple):
    """A request that was checked in full, with the settings of its client and its fields."""

    settings: ClientSettings
    request: OutgoingRequest
    fields: Mapping[str, Any]
    own_names: AbstractSet[str]


def _body(fields: Mapping[str, Any]) -> bytes | None:
    """Return the fields as JSON; ``None`` if they hold text that cannot be encoded, such as half a character."""
    try:
        return to_json(fields)
    except ValueError:
        return None


def _personalisation(
    recipients: Sequence[str], substitutions: Sequence[Mapping[str, str]] | None
) -> list[dict[str, str | Mapping[str, str]]] | None:
    if substitutions is None:
        return None
    return [{"to": to, "substitutions": own} for to, own in zip(recipients, substitutions, strict=True)]
