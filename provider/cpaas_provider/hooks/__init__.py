"""From an Airflow connection to the service."""
