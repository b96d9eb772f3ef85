"""How long the pages take with many campaigns and reports."""
