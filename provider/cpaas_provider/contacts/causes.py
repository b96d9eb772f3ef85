"""Why a contact list may differ from its source, in words for logs and pages."""

from __future__ import annotations

from collections.abc import Mapping

from cpaas_provider.api.amounts import counted

_NOUNS = {
    "invalid_rows": ("invalid row", None),
    "partial_rows": ("partial row", None),
    "missing_skipped": ("missing row skipped", "missing rows skipped"),
    "dry_run": ("request planned (dry run)", "requests planned (dry run)"),
}


def cause_words(causes: Mapping[str, int]) -> list[str]:
    """Return each cause in words: its number, and the name of its figure."""
    return [name.replace("_", " ") if name == "ended_early" else _words(name, count) for name, count in causes.items()]


def _words(name: str, count: int) -> str:
    words = name.replace("_", " ")
    return counted(count, *_NOUNS.get(name, (words, words)))
