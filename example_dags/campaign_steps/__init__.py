"""What the tasks of ``customer_campaign`` are made of."""
