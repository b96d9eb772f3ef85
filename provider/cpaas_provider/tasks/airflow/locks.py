"""A lock for requests to Airflow that are made in threads."""

from __future__ import annotations

import threading

ONE_AT_A_TIME = threading.RLock()
"""Held during a request to Airflow that may be made in a thread: dag.test() mixes up requests of two threads."""
