"""Airflow as the operators' runs use it: context, state store, delivery tracking, campaigns and contact syncs."""
