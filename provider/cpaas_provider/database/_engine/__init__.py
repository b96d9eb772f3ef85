"""How SQLite and PostgreSQL are opened, bounded in time, and understood when they fail."""
