"""``airflow cpaas journal``: the requests that tasks recorded, and the resolution of unknown outcomes."""
