"""The provider's database, for what must outlive a task's own state. By default it is a file in Airflow's home."""
