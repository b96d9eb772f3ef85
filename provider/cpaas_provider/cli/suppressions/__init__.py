"""``airflow cpaas suppressions ...``: the stored suppression list."""
