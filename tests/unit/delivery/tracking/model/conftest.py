"""Plays scripts on both databases."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from cpaas_provider.delivery.tracking import events
from tests.unit.database.migrated import PostgresSchemas, SqliteTemplate, url_of
from tests.unit.delivery.tracking.model.delivery_script import Script, Step
from tests.unit.delivery.tracking.model.delivery_setting import Setting, open_setting
from tests.unit.delivery.tracking.model.delivery_views import LOOKS, DeliveryViews
from tests.unit.delivery.tracking.model.delivery_world import DeliveryWorld

RunScript = Callable[..., None]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def setting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    """A database of this module's tests, with all that they share."""
    with contextlib.ExitStack() as stack:
        if request.param == "sqlite":
            template: SqliteTemplate = request.getfixturevalue("sqlite_template")
            file = tmp_path_factory.mktemp("model") / "home" / "store.db"
            template.copy_to(file)
            url = f"sqlite:///{file}"
        else:
            schemas: PostgresSchemas = request.getfixturevalue("postgres_schemas")
            name = f"cpaas_test_{secrets.token_hex(6)}"
            stack.enter_context(schemas.migrated(name))
            url = url_of(name)
        monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
        monkeypatch.setattr(events, "MIN_BATCH_INTERVAL", timedelta(0))
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, logging.NOTSET)
        yield stack.enter_context(open_setting(monkeypatch))


@pytest.fixture
def run_script(setting: Setting, tmp_path: Path) -> RunScript:
    """Plays a script on a database that is empty before.

    :param looks: the groups of views that are compared
    :param is_thorough: erasures overwrite the files, and commands print, which takes longer
    """

    def run(
        *steps: Step, tracked: tuple[str, ...] = (), looks: Collection[str] = LOOKS, is_thorough: bool = False
    ) -> None:
        world = DeliveryWorld(setting, tracked=tracked, is_thorough=is_thorough)
        views = DeliveryViews(world, tmp_path, looks=looks, is_thorough=is_thorough)
        Script(world, views).run(list(steps))

    return run
