"""What a try has of Airflow: context, state store, progress, log, supervisor and listener."""
