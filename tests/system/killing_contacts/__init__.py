"""Contact syncs on a real Airflow whose tasks and supervisors are killed at random moments."""
