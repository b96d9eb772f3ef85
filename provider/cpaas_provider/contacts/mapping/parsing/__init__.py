"""How each column type reads what sources hold."""
