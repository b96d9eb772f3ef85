"""The documentation: what it names is there, what is there it names, and what it shows works."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PROJECT = [ROOT / f"{name}.md" for name in ("CHANGELOG", "SECURITY", "CONTRIBUTING", "CODE_OF_CONDUCT")]
"""What a Git host shows beside the README."""
PAGES = [DOCS / "index.md", DOCS / "changelog.md", *sorted(DOCS.glob("*/*.md"))]
"""Every page of the site; a test compares this with what is built."""

if str(DOCS / "_ext") not in sys.path:
    sys.path.insert(0, str(DOCS / "_ext"))


def named(page: Path) -> str:
    """Return how a page is called in the name of a test."""
    return str(page.relative_to(ROOT))
