"""Reward the most loyal customers with airtime: one mapped task for each purchase."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import Param, dag, get_current_context, task

from cpaas_provider.operators.airtime import BuyAirtimeOperator

CUSTOMERS = Path(__file__).parent / "data" / "customers.csv"
NETWORKS = ("Airtel", "MTN", "Glo", "9mobile", "NTEL")

PARAMS = {
    "cpaas_conn_id": Param("cpaas_default", type="string", description="The connection to the service."),
    "winners": Param(3, type="integer", minimum=1, maximum=50, description="Number of customers to reward."),
    "amount": Param(50, type="number", minimum=50, description="Airtime for each winner, in the account's currency."),
}


def customers():
    """Return the rows of the customer list."""
    import csv

    with CUSTOMERS.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def phone_of(customer_id):
    """Return a customer's number. Airflow calls this macro while a task runs, so no XCom contains a number."""
    return next(row["phone"] for row in customers() if row["customer_id"] == customer_id)


@dag(
    schedule=None,
    catchup=False,
    params=PARAMS,
    user_defined_macros={"phone_of": phone_of},
    tags=["cpaas", "example"],
    doc_md="""
    ### Airtime rewards
    Selects the customers with the most points and looks up the network of each number. Buys airtime for each of them in
    a mapped task. The tasks pass on customer ids only. Each task looks up the number when it needs it.

    If the outcome of a purchase is unknown, its task fails and does not buy again, whatever its `retries` are. The
    service marks this operation as deprecated.
    """,
)
def airtime_rewards():
    """Describe the order of the steps."""
    # [start howto_airtime]
    purchases = BuyAirtimeOperator.partial(
        task_id="buy_airtime",
        cpaas_conn_id="{{ params.cpaas_conn_id }}",
        recipient="{{ phone_of(task.external_ref) }}",
        amount="{{ params.amount }}",
        map_index_template="{{ task.external_ref }}",
        max_active_tis_per_dagrun=2,
        retries=2,
        retry_delay=timedelta(seconds=10),
    ).expand_kwargs(draw_winners())
    report(purchases.output)
    # [end howto_airtime]


@task(retries=2, retry_delay=timedelta(seconds=10))
def draw_winners():
    """Return the winners' ids, and the network of each number."""
    from cpaas_provider.api import CpaasInvalidRequestError
    from cpaas_provider.hooks.cpaas import CpaasHook

    params = get_current_context()["params"]
    by_points = {row["customer_id"]: row for row in customers() if row["phone"] and (row["points"] or "").isdigit()}
    winners = []
    with CpaasHook(params["cpaas_conn_id"]).get_conn() as client:
        for customer_id, row in sorted(by_points.items(), key=lambda item: int(item[1]["points"]), reverse=True):
            if len(winners) == params["winners"]:
                break
            try:
                network = client.lookup_phone(row["phone"]).operator
            except CpaasInvalidRequestError:
                continue  # not a valid phone number
            if network in NETWORKS:
                winners.append({"external_ref": customer_id, "network": network})
    return winners


@task
def report(purchases):
    """Return the number of purchases and their cost."""
    bought = list(purchases)
    return {"purchases": len(bought), "charge": sum(purchase["charge"] or 0 for purchase in bought)}


airtime_rewards()
