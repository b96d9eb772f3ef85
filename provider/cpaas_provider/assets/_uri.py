"""The names of the assets: the same for DAGs that are scheduled on them and for the publisher."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

SCHEME = "x-cpaas"
"""Airflow loads all providers to normalise a URI, except for a scheme that begins with ``x-``."""

_BY_CAMPAIGN = ("each", "campaign")
_SINGLE_MESSAGES = ("with", "single_messages")


class DeliveryAsset(NamedTuple):
    """The meaning of an asset.

    :param kind: the kind of delivery event
    :param conn_id: the connection; ``None`` for all
    :param by_campaign: whether each campaign has events of its own
    :param include_single_messages: whether requests that belong to no campaign have events too
    """

    kind: str
    conn_id: str | None = None
    by_campaign: bool = False
    include_single_messages: bool = False

    @property
    def uri(self) -> str:
        """The asset's URI."""
        parameters = [_BY_CAMPAIGN] * self.by_campaign + [_SINGLE_MESSAGES] * self.include_single_messages
        uri = f"{SCHEME}://{self.kind}/{quote(self.conn_id or '', safe='')}"
        return f"{uri}?{urlencode(parameters)}" if parameters else uri

    @property
    def name(self) -> str:
        """The asset's name in Airflow's pages."""
        words = [f"cpaas {self.kind}"]
        words += [f"on {self.conn_id}"] if self.conn_id else []
        words += ["by campaign"] if self.by_campaign else []
        words += ["with single messages"] if self.include_single_messages else []
        return " ".join(words)


def parse_uri(uri: str) -> DeliveryAsset | None:
    """Return the meaning of an asset of this provider; ``None`` for any other."""
    parts = urlsplit(uri)
    if parts.scheme != SCHEME:
        return None
    conn_id = unquote(parts.path.strip("/"))
    parameters = parse_qs(parts.query)
    by_campaign, include_single_messages = (
        parameters.get(name) == [value] for name, value in (_BY_CAMPAIGN, _SINGLE_MESSAGES)
    )
    return DeliveryAsset(parts.netloc, conn_id or None, by_campaign, include_single_messages)
