"""What the demo itself does not do: a passcode and purchases of airtime, by the examples."""

from __future__ import annotations

import threading

from cpaas_provider.api import CpaasClient
from tests.sandbox import Sandbox
from tests.system.standalone import Standalone, wait_for

PHONE = "0803 123 4567"
WINNERS = 3


def run_activity(airflow: Standalone, sandbox: Sandbox) -> dict[str, str]:
    """Run the examples on a running Airflow; return how each run ended, by its DAG."""
    runs = {
        "otp_onboarding": airflow.trigger("otp_onboarding", {"phone": PHONE, "length": 8}),
        "airtime_rewards": airflow.trigger("airtime_rewards", {"winners": WINNERS}),
    }
    app = threading.Thread(target=_enter_code, args=(sandbox,))
    app.start()
    ends = {dag_id: airflow.ended(dag_id, run_id, 240) for dag_id, run_id in runs.items()}
    app.join(60)
    return ends


def _enter_code(sandbox: Sandbox) -> None:
    """Do what a person does with the code outside of Airflow."""
    token = wait_for("a passcode", lambda: (sandbox.inbox("otp")["items"] or [None])[0], 120)
    with CpaasClient(sandbox.url, sandbox.api_key) as client:
        client.verify_otp(token["id"], token["code"])
