"""What an author can do about a limit that stopped a campaign."""

from __future__ import annotations

from collections.abc import Collection


def advise(limit: str, templates: Collection[str], by_clear: str) -> str:
    """Return how a campaign continues that a limit stopped.

    :param templates: the arguments that are templates. A clear renders them with the params of the same run
    :param by_clear: how it continues where the DAG has the limit
    """
    if limit not in templates:
        return by_clear
    return (
        f"{limit} is a template, and a clear of this run uses the same params. Use on_limit='ask', an Airflow Variable "
        "in the template, or, with an idempotency_key, start a new run with another value."
    )
