"""Every metric that the provider publishes with Airflow's metrics. The reference is made from this table."""

from __future__ import annotations

from typing import NamedTuple

DELIVERY = "cpaas.delivery"
CAMPAIGN = "cpaas.campaign"
CONTACTS = "cpaas.contacts"
BUDGET = "cpaas.budget"


class Metric(NamedTuple):
    """One metric.

    :param name: its whole name, with ``<status>`` in place of an HTTP status
    :param kind: ``counter``, ``timer`` or ``gauge``
    """

    name: str
    kind: str
    meaning: str


METRICS = (
    Metric(f"{CAMPAIGN}.done", "gauge", "recipients of this try that are processed, with any outcome"),
    Metric(f"{CAMPAIGN}.left", "gauge", "recipients of this try that are not processed yet"),
    Metric(f"{CAMPAIGN}.sent", "gauge", "recipients the service accepted in this try"),
    Metric(f"{CAMPAIGN}.rejected", "gauge", "recipients the service rejected in this try"),
    Metric(f"{CAMPAIGN}.unknown", "gauge", "recipients of requests of unknown outcome in this try"),
    Metric(f"{CAMPAIGN}.requests", "gauge", "requests made in this try"),
    Metric(f"{CAMPAIGN}.recipients_per_second", "gauge", "recipients processed per second"),
    Metric(f"{CAMPAIGN}.charge", "gauge", "cost so far, in the account's currency, where the service names it"),
    Metric(f"{CAMPAIGN}.balance", "gauge", "the account's balance as last reported, where the service names it"),
    Metric(f"{CONTACTS}.done", "gauge", "rows that a contact sync has processed in this try"),
    Metric(f"{CONTACTS}.left", "gauge", "rows that a contact sync has not processed yet"),
    Metric(f"{CONTACTS}.created", "gauge", "rows created in this try"),
    Metric(f"{CONTACTS}.updated", "gauge", "rows updated in this try"),
    Metric(f"{CONTACTS}.deleted", "gauge", "rows deleted in this try"),
    Metric(f"{CONTACTS}.rejected", "gauge", "rows that the service rejected in this try"),
    Metric(f"{CONTACTS}.unknown", "gauge", "creations of unknown outcome in this try"),
    Metric(f"{CONTACTS}.not_sent", "gauge", "rows whose request failed in this try; a retry sends them"),
    Metric(f"{CONTACTS}.rows_per_second", "gauge", "rows processed per second"),
    Metric(
        f"{BUDGET}.spent",
        "gauge",
        "what is spent and reserved in the current day or month of a budget, after each request that costs money",
    ),
    Metric(f"{BUDGET}.limit", "gauge", "the budget itself"),
    Metric(f"{DELIVERY}.received", "counter", "delivery reports stored, with duplicates and unreadable ones"),
    Metric(f"{DELIVERY}.repeated", "counter", "of those, reports that were stored before"),
    Metric(f"{DELIVERY}.unreadable", "counter", "of those, reports that could not be read. They are stored raw"),
    Metric(
        f"{DELIVERY}.excess",
        "counter",
        "of those, reports on a recipient that the request of the callback URL does not have. They are stored raw, and "
        "they change and start nothing",
    ),
    Metric(f"{DELIVERY}.expired", "counter", "reports refused (404) because their callback URL has expired"),
    Metric(f"{DELIVERY}.too_many", "counter", "reports refused (429) because their callback URL has used up its quota"),
    Metric(f"{DELIVERY}.refused.<status>", "counter", "requests to the receiver that were answered with this status"),
    Metric(f"{DELIVERY}.lag", "timer", "time from the moment a report names until it was stored"),
)
