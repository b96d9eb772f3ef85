"""A task that a person confirms, on a real Airflow."""
