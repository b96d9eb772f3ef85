"""HTML and SVG: templates, charts, and how figures are written."""
