"""Links from a task to the delivery status of what it sent."""
