"""``airflow cpaas campaigns`` and ``deliveries``: campaigns and delivery reports in the provider's database."""
