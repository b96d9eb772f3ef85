"""Fixtures: a PostgreSQL behind a proxy that fails on demand, and a database there whose transactions are limited."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cpaas_provider.database.database import Database, open_database
from tests.tcp_proxy import Mode, Proxy, leading_through, proxy_before

LIMIT = 0.4


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    """Stands before PostgreSQL."""
    with proxy_before(postgres_url) as running:
        yield running


@pytest.fixture
def behind(proxy: Proxy, postgres_url: str) -> Iterator[Database]:
    """A database behind it, whose transactions are limited."""
    open_database(postgres_url).close()
    with open_database(leading_through(proxy, postgres_url), write_timeout=LIMIT) as opened:
        opened.check()
        yield opened
        proxy.turn(Mode.PASS)
