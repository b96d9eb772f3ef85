"""How CSV files are read: their lines, their delimiter and column names, their records."""
