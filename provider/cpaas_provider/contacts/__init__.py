"""Contact rows in the author's terms: column names and Python values."""
