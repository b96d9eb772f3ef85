"""The link from a task that sends to the page with its delivery counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey

MAX_REFERENCES = 100
"""The most references in one link, because the length of a URL is limited."""


class DeliveryLink(BaseOperatorLink):
    """A link to the delivery counts of what the task sent. It is empty if the connection has no ``callback_url``.

    The link of a campaign is available while the campaign is being sent.
    """

    name = "Delivery"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's address from the operator. Airflow stores it when the task ends."""
        link: str = getattr(operator, "delivery_link", "")
        return link


def page_url(references: Iterable[str]) -> str:
    """Return the address of the page on Airflow's API server."""
    from urllib.parse import urlencode

    from airflow.sdk.configuration import conf

    base = conf.get("api", "base_url", fallback="") or "/"
    query = urlencode([("campaign", reference) for reference in list(references)[:MAX_REFERENCES]])
    return f"{base.rstrip('/')}/cpaas/deliveries?{query}" if query else ""


def push_link(context: Context, link: str) -> None:
    """Store the link of a long task while it runs."""
    context["ti"].xcom_push(key=DeliveryLink().xcom_key, value=link)
