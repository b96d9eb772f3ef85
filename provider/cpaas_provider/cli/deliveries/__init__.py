"""``airflow cpaas campaigns`` and ``deliveries``: what was sent with delivery reports, from the provider's database."""
