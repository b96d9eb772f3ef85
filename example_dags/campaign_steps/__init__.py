"""Helpers of the tasks of ``customer_campaign``."""
