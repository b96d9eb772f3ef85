"""From source rows to typed cells: rules, columns, keys, and how each type is written."""
