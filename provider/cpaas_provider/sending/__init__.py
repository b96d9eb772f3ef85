"""What makes a send safe: a record of each request, and what a later try may still send."""
