"""What makes a send safe: who was sent what, and what a later try may still do."""
