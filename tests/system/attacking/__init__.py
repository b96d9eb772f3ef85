"""Attacks on a receiver that runs, by itself or in Airflow's API server, while honest reports come in."""
