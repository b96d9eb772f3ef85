"""Notifiers: an SMS or an email when a task or DAG fails, succeeds or misses its deadline. Imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpaas_provider._common import lazy_names

if TYPE_CHECKING:
    from cpaas_provider.notifications.email import EmailNotifier as EmailNotifier
    from cpaas_provider.notifications.sms import SmsNotifier as SmsNotifier

_HOMES = {"email": ("EmailNotifier",), "sms": ("SmsNotifier",)}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
