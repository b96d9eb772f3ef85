"""The operators for phone lookups, of one number and of all in a source (contract.md 4.14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from cpaas_provider.operators import _masking as masking
from cpaas_provider.operators.base import STOP_GRACE_PERIOD, CpaasOperator, select_fields
from cpaas_provider.tasks import validators

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.tasks.runner import Attempt
    from cpaas_provider.tasks.runtime import TaskRuntime

_FIELDS = ("msisdn", "operator", "country", "ported", "dnd")


class PhoneLookupOperator(CpaasOperator):
    """Look up the operator, country, porting and do-not-disturb mark of a phone number. The service charges for it.

    The task fails without a retry if the value is not a phone number. It fails without a retry, too, if the response
    cannot be read, because the service may have charged for it.

    :param phone: the phone number, in any usual form (templated)
    :param return_fields: the fields to return. Default: all five
    :returns: the record, with null for what the service does not know:

        | Key | Value |
        |---|---|
        | ``msisdn`` | The phone number. ``return_fields=["operator", "dnd"]`` leaves it out of the XCom. |
        | ``operator`` | Name of the network operator. |
        | ``country`` | Country of the number. |
        | ``ported`` | Whether the number was ported to another operator. |
        | ``dnd`` | Whether the number is marked as do-not-disturb. |
    """

    template_fields = ("phone", "cpaas_conn_id")
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"phone": masking.recipient}

    def __init__(self, *, phone: str, return_fields: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._set_arguments(locals())

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Look the number up."""
        # Refuses wrong names before the service charges for the lookup.
        select_fields(dict.fromkeys(_FIELDS), self.return_fields)
        record = client.lookup_phone(self.rendered("phone"))
        return select_fields({field: getattr(record, field) for field in _FIELDS}, self.return_fields)


class BulkPhoneLookupOperator(CpaasOperator):
    """Look up every phone number in a source, and write the records of the service to a file.

    The service charges for each lookup. The provider's database stores the lookups every second. This operator and the
    ``skip_dnd`` of campaigns use a stored lookup again for ``lookup_ttl``. So a retry, or a run with the same numbers,
    pays only for numbers that are not stored. ``PhoneLookupSource`` reads the file as the source of a campaign.

    The task fails when more lookups fail or rows are invalid than ``max_failure_ratio`` allows. It first looks up all
    other numbers, and writes the file. After ten failed lookups in a row it stops, and a retry continues.

    :param source: the numbers: a path of a CSV, JSON Lines or Parquet file, a source of ``cpaas_provider.sources``, or
        a list (templated)
    :param results_path: path of the results file, ``.jsonl`` or ``.parquet``, with one line for each row (templated)
    :param phone_column: the column of the phone numbers
    :param include_columns: columns of the source to copy into the results file, as text
    :param lookup_ttl: how long a lookup is used again, as a timedelta or in seconds (templated)
    :param max_lookups: highest number of lookups in one try, failed ones included. ``None`` and ``unlimited`` set no
        limit (templated)
    :param max_failure_ratio: share of rows that may be invalid or fail, 0 to 1, before the task fails (templated)
    :param spool_path: a folder on the worker's disk for the rows. Default: the system's folder for temporary files
    :param progress_interval: seconds between progress log lines
    :param stop_grace_period: seconds to wait for responses after Airflow stops the task
    :returns: counts of this try:

        | Key | Value |
        |---|---|
        | ``rows`` | Number of rows of the source. |
        | ``found`` | Number of rows whose number the service knows. |
        | ``lookups`` | Number of lookups that were made, which the service charges for. |
        | ``cached`` | Number of numbers that were stored already. |
        | ``dnd`` | Number of rows marked as do-not-disturb. |
        | ``lookup_failed`` | Number of rows whose lookup failed. |
        | ``invalid_rows`` | Number of rows that cannot be used. |
        | ``countries`` | Number of rows by country, for up to 50 countries. |
        | ``results_path`` | Path of the results file. |
    """

    template_fields = ("source", "results_path", "lookup_ttl", "max_lookups", "max_failure_ratio", "cpaas_conn_id")
    typed_fields: ClassVar[Mapping[str, validators.Check]] = {
        name: validators.OPTION_CHECKS[name] for name in ("lookup_ttl", "max_lookups", "max_failure_ratio")
    }
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"source": masking.source}

    def __init__(
        self,
        *,
        source: Any,
        results_path: Any,
        phone_column: str = "phone",
        include_columns: Sequence[str] = (),
        lookup_ttl: timedelta | float | str = timedelta(days=30),
        max_lookups: int | str | None = None,
        max_failure_ratio: float | str = 0.0,
        spool_path: str | None = None,
        progress_interval: float = 10.0,
        stop_grace_period: float = STOP_GRACE_PERIOD,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_arguments(locals(), include_columns=_column_names, results_path=_results_path)

    def make_attempt(self, runtime: TaskRuntime, **resumed: Any) -> Attempt:
        """Return one try of the bulk lookup."""
        from cpaas_provider.tasks.contacts.bulk_lookup import BulkLookup, BulkLookupSpec

        return BulkLookup(self._build_spec(BulkLookupSpec, source_summary=self.source), runtime)


def _column_names(name: str, value: Any) -> list[str]:
    """Accept names of columns, except those that every results file has."""
    if isinstance(value, str) or not all(isinstance(column, str) and column for column in value):
        raise ValueError(f"{name} must be a list of column names; it is {value!r}.")
    if not value:
        return []
    from cpaas_provider.sources.phone_lookups import LOOKUP_COLUMNS

    if taken := [column for column in value if column in LOOKUP_COLUMNS]:
        raise ValueError(f"{name} has {', '.join(taken)}, which the results file has of its own.")
    return list(dict.fromkeys(value))


def _results_path(name: str, value: Any) -> Any:
    """Accept the path of a results file."""
    if value is None:
        raise ValueError(f"{name} is None. The results of a bulk lookup are in that file.")
    return validators.results_path(name, value)
