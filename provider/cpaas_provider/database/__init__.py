"""The provider's database, for what must outlive a task's own state. By default it is a file in Airflow's home."""

REVISIONS = ("v0001",)
"""All versions of the tables, the newest last. They are here because this package does not load SQLAlchemy."""
