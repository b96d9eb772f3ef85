"""Two campaigns under one frequency cap, at once, on a real Airflow."""
