"""Two mapped campaigns under one rate limit, at once, on a real Airflow."""
