"""Sphinx configuration. Build with ``make docs``."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
# The page of what can be read has the tables of the tests.
sys.path.insert(1, str(HERE.parent))

_project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "CPaaS provider for Apache Airflow"
author = "The airflow-provider-cpaas maintainers"
project_copyright = author
version = release = _project["version"]

extensions = ["myst_parser", "cpaas_docs"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
exclude_patterns = ["_ext"]
nitpicky = True

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = project
html_baseurl = _project["urls"]["Documentation"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
