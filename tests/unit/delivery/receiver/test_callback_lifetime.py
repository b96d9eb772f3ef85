"""What the receiver takes from Airflow's configuration."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from cpaas_provider.delivery.receiver import app
from cpaas_provider.delivery.receiver.app import callback_lifetime
from cpaas_provider.delivery.receiver.log_throttle import ThrottledLogger
from cpaas_provider.delivery.receiver.secrets_cache import ConnectionSecrets


def test_callback_lifetime_is_90_days_unless_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert callback_lifetime() == ConnectionSecrets(()).callback_lifetime == timedelta(days=90)
    monkeypatch.setenv("AIRFLOW__CPAAS__CALLBACK_DAYS", "30")
    assert callback_lifetime() == timedelta(days=30)


@pytest.mark.parametrize("days", ["0", "-1", "soon", "1e3", "99999999999"])
def test_invalid_callback_lifetime_is_logged_and_the_default_used(
    days: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app, "throttled_log", ThrottledLogger(logging.getLogger(app.__name__)))
    monkeypatch.setenv("AIRFLOW__CPAAS__CALLBACK_DAYS", days)
    assert callback_lifetime() == timedelta(days=90)
    assert "callback_days is not a whole number above 0" in caplog.text
