"""What the test of "Clear task" in a real Airflow runs."""
