"""Checks of the sources' arguments, and their behaviour as an operator's argument."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from typing import Any

_TASK_OUTPUT_HINT = (
    "A source cannot take a task's output. Give the output to the operator itself. Or use a template such as "
    "{{ ti.xcom_pull(task_ids='...') }}, and order the tasks."
)


_DATA_FRAMES = {("pandas", "DataFrame"): "pandas", ("polars", "DataFrame"): "Polars", ("pyarrow", "Table"): "Arrow"}


class Argument:
    """Base of objects that Airflow copies, compares and shows. Equal if all attributes are; shown by ``__str__``."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]  # Airflow renders templates in it, so its attributes change

    def __repr__(self) -> str:
        return f"<{self}>"


def text(name: str, value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be text; {_describe(value)}")
    return value


def text_or_none(name: str, value: Any) -> str | None:
    """Return a text, or ``None`` for none."""
    return None if value is None else text(name, value)


def path(name: str, value: Any) -> Any:
    """Return a path: text, a ``Path`` or an ``ObjectStoragePath``."""
    return value if is_path(value) else text(name, value)


def is_path(value: Any) -> bool:
    """Return whether a value is a path object; Airflow's own is not a ``PathLike``."""
    if isinstance(value, PathLike):
        return True
    from airflow.sdk import ObjectStoragePath

    return isinstance(value, ObjectStoragePath)


def is_task_output(value: Any) -> bool:
    """Return whether a value is a reference to the output of a task."""
    return hasattr(value, "resolve") and not is_path(value)


def data_frame_kind(value: Any) -> str | None:
    """Return the library of a data frame or table of Arrow, without importing it; ``None`` for other values."""
    for ancestor in type(value).__mro__:
        if kind := _DATA_FRAMES.get((ancestor.__module__.partition(".")[0], ancestor.__name__)):
            return kind
    return None


def one_character(name: str, value: Any) -> str | None:
    """Return a single character that a line may contain, or ``None`` for none."""
    if value is None:
        return None
    if not isinstance(value, str) or len(value) != 1 or value in "\r\n\0":
        raise ValueError(f"{name} must be a single character.")
    return value


def count_or_none(name: str, value: Any) -> int | None:
    """Return a whole number from 0, or ``None`` for no bound."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError(f"{name} must be a whole number of at least 0, or None.")
    return value


def texts_or_none(name: str, value: Any) -> tuple[str, ...] | None:
    """Return a list of texts without blanks around them, or ``None`` for none."""
    if value is None:
        return None
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Collection):
        raise ValueError(f"{name} must be a list of texts; {_describe(value)}")
    if any(not isinstance(text, str) for text in value):
        raise ValueError(f"{name} must be a list of texts.")
    return tuple(text.strip() for text in value)


def parameters(name: str, value: Any) -> Any:
    """Return the values of a query's placeholders: a mapping, a sequence or ``None``."""
    if value is None or (isinstance(value, (Mapping, Sequence)) and not isinstance(value, (str, bytes))):
        return value
    raise ValueError(f"{name} must be a list or a mapping; {_describe(value)}")


def _describe(value: Any) -> str:
    if is_task_output(value):
        return f"it is a task's output. {_TASK_OUTPUT_HINT}"
    return "it is empty." if isinstance(value, str) else f"it is of type {type(value).__name__}."
