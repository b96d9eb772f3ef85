"""What outlives a task's own state: our database, by default a file in Airflow's home. It gives no meaning to it."""
