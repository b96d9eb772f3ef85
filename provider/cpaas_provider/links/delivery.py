"""The link from a task that sends to the page with its delivery counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

MOST = 100
"""The most references in one link; a URL has a limited length."""


class DeliveryLink(BaseOperatorLink):
    """A link to the delivery counts of what the task sent. It is empty if the connection has no ``callback_url``.

    The link of a campaign is available while the campaign is being sent.
    """

    name = "Delivery"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's address as the task recorded it."""
        link: str = operator.__dict__.get("_delivery_link", "")
        return link


def page_url(references: Iterable[str]) -> str:
    """Return the address of the page on Airflow's API server."""
    from urllib.parse import urlencode

    from airflow.sdk.configuration import conf

    base = conf.get("api", "base_url", fallback="") or "/"
    query = urlencode([("campaign", reference) for reference in list(references)[:MOST]])
    return f"{base.rstrip('/')}/cpaas/deliveries?{query}" if query else ""


def lead(operator: Any, references: Iterable[str]) -> None:
    """Set a task's link to what it sent; Airflow stores the link when the task succeeds."""
    operator.__dict__["_delivery_link"] = page_url(references)


def lead_at_once(operator: Any, context: Any, references: Iterable[str]) -> None:
    """Set the link of a long task, and store it at once."""
    lead(operator, references)
    context["ti"].xcom_push(key=DeliveryLink().xcom_key, value=operator.__dict__["_delivery_link"])
