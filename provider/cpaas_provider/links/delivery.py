"""From a task that sends to the page that says how far its delivery is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

MOST = 100
"""References one link names; a URL has its bounds."""


class DeliveryLink(BaseOperatorLink):
    """Leads to the counts of what the task sent; of a task without ``callback_url`` on its connection, nowhere.

    While a campaign is sent it is there already, and says how far that is.
    """

    name = "Delivery"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's address as the task noted it."""
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
    """Have a task's link lead to what it sent; Airflow stores it when the task succeeds."""
    operator.__dict__["_delivery_link"] = page_url(references)


def lead_at_once(operator: Any, context: Any, references: Iterable[str]) -> None:
    """Have the link of a task that goes on for long lead there from now on."""
    lead(operator, references)
    context["ti"].xcom_push(key=DeliveryLink().xcom_key, value=operator.__dict__["_delivery_link"])
