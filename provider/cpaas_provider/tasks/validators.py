"""Checks of operator arguments, made where the DAG is written. A check returns the value or raises ``ValueError``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from cpaas_provider.api.bounds import CHANNELS, file_name, flag, flag_or_none, is_known, is_missing_argument, texts

Check = Callable[[str, Any], Any]

# The bounds of the database package, which is too slow to import in a DAG file.
_LONGEST_CAP = timedelta(days=90)
_LONGEST_CATEGORY = 100


def or_none(check: Check) -> Check:
    """Return a check that also accepts ``None``."""
    return lambda name, value: None if value is None else check(name, value)


def templated(check: Check) -> Check:
    """Return a check of an argument that may be a template or the output of a task. These are checked as they run."""
    return lambda name, value: check(name, value) if is_final(value) else value


def is_final(value: Any) -> bool:
    """Tell whether an argument has no template and no output of a task, also in its items. ``None`` is final."""
    if isinstance(value, (list, tuple)):
        return all(map(is_final, value))
    return value is None or is_known(value)


def rendered(check: Check) -> Check:
    """Return a check of a rendered argument that is no text. A template makes text of a boolean or number.

    Its error shows only a value that holds no secret and no number of a user: a template may have taken another
    value than the author meant.
    """

    def read(name: str, value: Any) -> Any:
        written = _written_value(value)
        if check is row_limit and isinstance(written, float) and written == 1:
            # A form or a JSON file may write the number 1 like this.
            raise ValueError(
                f"{name} is 1.0, which may stand for one row or for all rows. Write 1 for one row, or "
                f'"{UNLIMITED}" for all rows.'
            )
        if written is None:
            # Of a limit it would mean that there is none. That is written as "unlimited".
            raise ValueError(f"{name} is None. {_NO_VALUE}")
        try:
            return check(name, written)
        except ValueError as error:
            if isinstance(written, str) and _may_be_shown(written):
                raise ValueError(f"{error} {_NO_VALUE}") from None
            if _may_be_shown(written):
                raise
        check(name, _Unshown(_description(written)))
        raise ValueError(f"{name} cannot be used.")

    return read


_NO_VALUE = "The template gave no value: check the param."


class _Unshown(str):
    """Stands for a value that an error must not show. No check accepts it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_MOST_DIGITS_SHOWN = 7
"""A phone number, and a passcode that is worth something, are longer, or no option accepts their kind."""


def _may_be_shown(value: Any) -> bool:
    if value is None or isinstance(value, (bool, timedelta)):
        return True
    if isinstance(value, (list, tuple)):
        return all(map(_may_be_shown, value))
    if isinstance(value, (int, float)):
        return bool(abs(value) < 10**_MOST_DIGITS_SHOWN)
    return isinstance(value, str) and (not value.strip() or is_missing_argument(value.strip()))


def _description(value: Any) -> str:
    if isinstance(value, str):
        from cpaas_provider.api.amounts import counted

        return f"a text of {counted(len(value), 'character')}"
    return "a number of many digits" if isinstance(value, (int, float)) else f"a {type(value).__name__}"


def _written_value(value: Any) -> Any:
    """Return what a text is written as: a boolean or number, in Python or JSON, or a list of such, else the text."""
    if isinstance(value, (list, tuple)):
        return [_written_value(item) for item in value]
    if not isinstance(value, str):
        return value
    from cpaas_provider._common.rendering import parse_container

    container = parse_container(value)
    if isinstance(container, (list, tuple)):
        return [_written_value(item) for item in container]
    try:
        written = json.loads(value.strip().lower())
    except (ValueError, RecursionError):
        return value
    return written if isinstance(written, (bool, int, float)) else value


def one_of(*words: str) -> Check:
    """Return a check that accepts only the given words."""

    def check(name: str, value: Any) -> Any:
        if value not in words:
            raise ValueError(f"{name} must be one of {', '.join(words)}; it is {value!r}.")
        return value

    return check


def sms_encoding(channel: str) -> Check:
    """Return a check of the encoding of an SMS. Other channels have none."""
    return or_none(one_of("gsm7")) if channel == "sms" else or_none(_refuse_encoding)


def _refuse_encoding(name: str, value: Any) -> Any:
    raise ValueError(f"{name} is for channel='sms' only; it is {value!r}.")


on_unknown = one_of("fail", "skip", "resend")


def seconds(name: str, value: Any) -> float:
    """Accept a number of seconds."""
    if not _is_number(value) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number of seconds of at least 0; it is {value!r}.")
    return float(value)


def duration(name: str, value: Any) -> timedelta:
    """Accept a timedelta, or a number of seconds, and return the timedelta."""
    if not isinstance(value, timedelta) and not (_is_number(value) and math.isfinite(value)):
        raise ValueError(f"{name} must be a timedelta or a number of seconds; it is {value!r}.")
    span = value if isinstance(value, timedelta) else timedelta(seconds=value)
    if span < timedelta():
        raise ValueError(f"{name} must not be negative; it is {value!r}.")
    return span


duration_or_none = or_none(duration)


def ratio(name: str, value: Any) -> float:
    """Accept a share from 0 to 1."""
    if not _is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1; it is {value!r}.")
    return float(value)


UNLIMITED = "unlimited"
"""Sets no limit, as ``None`` does. A template may not give ``None``, which may be a value that is missing."""

ALWAYS = "always"
"""The send window that is never closed, as ``None`` is. A template may not give ``None``."""


def limit(check: Check) -> Check:
    """Return a check of a limit: ``None`` and the word ``unlimited`` set none.

    :return: ``None`` for no limit
    """

    def check_limit(name: str, value: Any) -> Any:
        if value is None or (isinstance(value, str) and value.strip() == UNLIMITED):
            return None
        try:
            return check(name, value)
        except ValueError as error:
            bounds, _, given = str(error).rpartition("; it is ")
            raise ValueError(f"{bounds}, or 'unlimited'; it is {given}" if bounds else str(error)) from None

    return check_limit


def row_limit(name: str, value: Any) -> Any:
    """Accept a count of rows (a whole number), or a share of them (a float from 0 to 1).

    :return: ``None`` for no limit: for ``None`` and for the word ``unlimited``
    """
    if value is None or value == UNLIMITED:
        return None
    is_share = isinstance(value, float) and 0 <= value <= 1
    if not is_share and (isinstance(value, (bool, float)) or not isinstance(value, int) or value < 0):
        raise ValueError(
            f"{name} must be a whole number of at least 0, 'unlimited', or a float from 0 to 1; it is {value!r}."
        )
    return value


def _amount(name: str, value: Any) -> float:
    if not _is_number(value) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be an amount of at least 0; it is {value!r}.")
    return float(value)


amount_or_none = or_none(_amount)


def frequency_cap(name: str, value: Any) -> tuple[int, timedelta] | None:
    """Accept a number of messages and the period in which they are counted, or ``None`` for no cap."""
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f"{name} must be a number of messages and a period, such as (3, timedelta(days=7)).")
    messages, period = integer_at_least(1)(f"{name}[0]", value[0]), duration(f"{name}[1]", value[1])
    if not timedelta() < period <= _LONGEST_CAP:
        raise ValueError(f"{name}[1] must be a period of at most {_LONGEST_CAP.days} days; it is {value[1]!r}.")
    return messages, period


def frequency_category(name: str, value: Any) -> str | None:
    """Accept the name of a category, or ``None``."""
    if value is not None and not (isinstance(value, str) and 0 < len(value.strip()) <= _LONGEST_CATEGORY):
        raise ValueError(f"{name} must be text of 1 to {_LONGEST_CATEGORY} characters; it is {value!r}.")
    return value


def mapping_or_texts(name: str, value: Any) -> Any:
    """Accept a mapping, a list of texts or ``None``."""
    return value if value is None or isinstance(value, Mapping) else texts(name, value)


def results_path(name: str, value: Any) -> Any:
    """Accept the path of a results file, or ``None``."""
    if value is None:
        return None
    from cpaas_provider.sources.results_file import SUFFIXES

    return file_name(SUFFIXES)(name, value)


def check_send_window(window: Any, timezone: Any, timezone_column: Any) -> None:
    """Check a send window with its time zones.

    :param window: two times of day, ``always``, or ``None`` for an argument that is not given
    :raises ValueError: when they cannot be used together
    """
    if window is None and (timezone or timezone_column):
        raise ValueError("timezone and timezone_column need a send_window, and none is given.")
    if window not in (None, ALWAYS):
        from cpaas_provider.sending.campaign.guards.send_window import SendWindow

        SendWindow.read(window, timezone or (timezone_column and "UTC"))


def check_test_only(test_only: Any, test_recipients: Any) -> None:
    """Check that a campaign that ends after its test recipients has some.

    :raises ValueError: when it has none
    """
    if test_only and test_recipients is None:
        raise ValueError("test_only needs test_recipients.")


def send_window(name: str, value: Any) -> Any:
    """Accept two times of day, or the word ``always``; ``check_send_window`` checks them with their time zones."""
    is_always = isinstance(value, str) and value.strip() == ALWAYS
    if not is_always and (not isinstance(value, (list, tuple)) or len(value) != 2):
        raise ValueError(f'{name} must be two times of day such as ("09:00", "20:00"), or \'always\'.')
    return ALWAYS if is_always else value


def time_zone(name: str, value: Any) -> str:
    """Accept the name of a time zone; ``check_send_window`` checks that there is one of this name."""
    if not isinstance(value, str) or not value.strip() or is_missing_argument(value.strip()):
        raise ValueError(f"{name} must be a time zone such as Africa/Lagos; it is {value!r}.")
    return value


def check_partition(partition: Any, results_path: Any) -> None:
    """Check a partition. One that an upstream task supplies is checked when the task runs.

    :raises ValueError: when it is none of ``partitions(count)``, or when all partitions would write one results file
    """
    if not isinstance(partition, Mapping):
        return
    from cpaas_provider.sending.partitions import Partition

    is_parted = Partition.read(partition).of > 1
    if is_parted and isinstance(results_path, str) and "map_index" not in results_path:
        raise ValueError(
            "results_path is the same for all partitions, so they would overwrite each other's results file. Put "
            "{{ ti.map_index }} into it."
        )


def require_text(operator: Any) -> None:
    """Check that ``content`` or ``template_id`` is given."""
    if all(value is None or value == "" for value in (operator.content, operator.template_id)):
        raise ValueError(f"{operator}: neither content nor template_id is given. Give one of them.")


def integer_at_least(least: int) -> Check:
    """Return a check that accepts whole numbers of at least ``least``."""

    def check(name: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}; it is {value!r}.")
        return value

    return check


count_or_none = or_none(integer_at_least(1))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


OPTION_CHECKS: Mapping[str, Check] = {
    "allow_backfill": flag,
    "channel": one_of(*CHANNELS),
    "confirmation_timeout": duration_or_none,
    "create_if_missing": flag,
    "dry_run": flag,
    "empty_cell_value": one_of("null", "empty"),
    "fail_if_not_verified": flag,
    "frequency_cap": limit(frequency_cap),
    "frequency_category": frequency_category,
    "is_trackable": flag_or_none,
    "lease_timeout": duration,
    "lookup_ttl": duration,
    "max_changes": row_limit,
    "max_charge": limit(_amount),
    "max_deletes": row_limit,
    "max_duration": limit(duration),
    "max_failure_ratio": ratio,
    "max_identical_rejections": limit(integer_at_least(1)),
    "max_lateness": limit(duration),
    "max_lookups": limit(integer_at_least(0)),
    "max_new": row_limit,
    "max_pending_requests": count_or_none,
    "max_recipients": limit(integer_at_least(1)),
    "min_balance": limit(_amount),
    "mode": one_of("upsert", "insert", "update"),
    "new_map": flag,
    "on_concurrent_sync": one_of("wait", "fail"),
    "on_deleted_row": one_of("create", "report"),
    "on_duplicate_key": one_of("first", "none"),
    "on_invalid_cell": one_of("skip_row", "skip_cell"),
    "on_invalid_suppression": one_of("fail", "skip"),
    "on_limit": one_of("fail", "ask"),
    "on_lookup_error": one_of("skip", "send", "fail"),
    "on_missing_charge": one_of("balance", "fail"),
    "on_rejected_batch": one_of("bisect", "fail"),
    "on_unknown": on_unknown,
    "preview_count": integer_at_least(0),
    "price_per_page": amount_or_none,
    "progress_interval": seconds,
    "require_verified_status": flag,
    "resend_on_clear": flag,
    "resync": flag,
    "results_path": results_path,
    "retry_rejected": flag,
    "return_fields": or_none(texts),
    "send_window": or_none(send_window),
    "skip_dnd": flag,
    "skip_if_missing": flag,
    "stop_grace_period": seconds,
    "substitutions": templated(mapping_or_texts),
    "test_only": flag,
    "timezone": or_none(time_zone),
    "track_recipients": flag,
    "unknown_timeout": duration,
    "use_suppression_list": flag,
}
"""What an option of this name may be, in every operator that has it."""
