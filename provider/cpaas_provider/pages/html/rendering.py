"""HTML from templates: how figures are written, and how names and messages are shown as text."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from cpaas_provider.api import amounts
from cpaas_provider.api.recipients.reader import mask_recipient
from cpaas_provider.api.redact import redact
from cpaas_provider.contacts.causes import cause_words
from cpaas_provider.delivery.tracking.request_recipients import UNNAMED_PREFIX
from cpaas_provider.pages.html import charts

FOLDER = Path(__file__).parents[1]

HEADERS = {
    # Nothing from another host, and no script or style in the page itself.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'self'; base-uri 'none'"
    ),
    "Referrer-Policy": "same-origin",
}


NOTHING = "\N{EN DASH}"


def number(value: float | None) -> str:
    """Return a count."""
    return NOTHING if value is None else f"{value:,.0f}"


def money(value: float | None) -> str:
    """Return an amount."""
    return NOTHING if value is None else amounts.format_amount(value)


def rate(value: float | None) -> str:
    """Return recipients a second."""
    return NOTHING if not value else f"{value:,.1f}/s"


def share(part: float | None, whole: float | None) -> str:
    """Return a share in per cent; only what is all or nothing is 100 % or 0 %."""
    if part is None or not whole:
        return NOTHING
    percent = 100 * part / whole
    if 0 < percent < 0.1 or 99.9 < percent < 100:
        return "< 0.1 %" if percent < 1 else "> 99.9 %"
    return f"{percent:.1f} %"


def moment(value: datetime | None) -> str:
    """Return a moment in UTC."""
    return NOTHING if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def span(seconds: float | None) -> str:
    """Return a span of time."""
    if seconds is None:
        return NOTHING
    days = round(round(seconds) / 60) // (24 * 60)
    return f"{days} days" if days > 1 else amounts.span(seconds)


def recipient(value: str) -> str:
    """Return a recipient masked."""
    return "not named" if not value or value.startswith(UNNAMED_PREFIX) else mask_recipient(value)


def words(value: Any) -> str:
    """Return words of the service or of a setting without numbers, addresses and control characters."""
    return redact(str(value), ())


FILTERS = (number, money, rate, moment, span, recipient, words, cause_words)


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        loader=FileSystemLoader(FOLDER / "templates"),
    )
    environment.filters.update({write.__name__: write for write in FILTERS})
    environment.globals.update(bar=charts.bar, share=share)
    return environment


def render(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page."""
    return HTMLResponse(_environment().get_template(template).render(**values), status, headers=HEADERS)
