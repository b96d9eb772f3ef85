"""HTML from templates: whatever a name or message holds is shown as text."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from cpaas_provider.pages.html import charts, formats

FOLDER = Path(__file__).parents[1]

HEADERS = {
    # Nothing from another host, and no script or style in the page itself.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'self'; base-uri 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        loader=FileSystemLoader(FOLDER / "templates"),
    )
    environment.filters.update(formats.FILTERS)
    environment.globals.update(bar=charts.bar, share=formats.share)
    return environment


def render(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page."""
    return HTMLResponse(_environment().get_template(template).render(**values), status, headers=HEADERS)
