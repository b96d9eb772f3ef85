"""How the assets of delivery are called: one name for authors' DAGs, and for those who tell them."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

SCHEME = "x-cpaas"
"""Of a scheme that begins so Airflow asks no provider how it is written, for which it would load them all."""

_EACH = "each"
_CAMPAIGN = "campaign"


class AssetName(NamedTuple):
    """What an asset stands for.

    :param kind: what happens
    :param conn_id: on which connection; ``None`` for all
    :param by_campaign: each campaign is told of by itself
    """

    kind: str
    conn_id: str | None = None
    by_campaign: bool = False

    @property
    def uri(self) -> str:
        """The asset's URI."""
        query = f"?{_EACH}={_CAMPAIGN}" if self.by_campaign else ""
        return f"{SCHEME}://{self.kind}/{quote(self.conn_id or '', safe='')}{query}"

    @property
    def title(self) -> str:
        """The asset's name in Airflow's pages."""
        words = [f"cpaas {self.kind}"]
        words += [f"on {self.conn_id}"] if self.conn_id else []
        words += ["by campaign"] if self.by_campaign else []
        return " ".join(words)


def read_uri(uri: str) -> AssetName | None:
    """Return what an asset of ours stands for; ``None`` for any other."""
    parts = urlsplit(uri)
    if parts.scheme != SCHEME:
        return None
    conn_id = unquote(parts.path.strip("/"))
    return AssetName(parts.netloc, conn_id or None, parse_qs(parts.query).get(_EACH) == [_CAMPAIGN])
