"""Links from a task to what became of what it did."""
