"""The base of SMS and email campaigns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cpaas_provider.operators import _masking as masking
from cpaas_provider.operators.base import STOP_GRACE_PERIOD, CpaasOperator, LazyDeliveryLinks, OnUnknown
from cpaas_provider.sending.partitions import partitions as partitions
from cpaas_provider.tasks import validators

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context

    from cpaas_provider.tasks.campaign.spec import CampaignSpec, DndOptions
    from cpaas_provider.tasks.runner import Attempt
    from cpaas_provider.tasks.runtime import TaskRuntime

MASKED_CAMPAIGN_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "source": masking.source,
    "content": masking.text,
    "suppression_list": masking.source,
    "test_recipients": masking.entries,
    "callback": masking.url,
}

CAMPAIGN_LIMITS = (
    "preview_count",
    "test_only",
    "max_recipients",
    "max_charge",
    "min_balance",
    "price_per_page",
    "send_window",
    "timezone",
    "use_suppression_list",
    "frequency_cap",
    "max_failure_ratio",
    "max_identical_rejections",
    "allow_backfill",
    "max_lateness",
    "on_limit",
)
"""The limits and switches that params of a run may set. What describes the data, and what is done about an error, is
of the DAG."""
TYPED_CAMPAIGN_FIELDS: Mapping[str, validators.Check] = {
    name: validators.OPTION_CHECKS[name] for name in (*CAMPAIGN_LIMITS, "dry_run")
}


class CampaignOperator(CpaasOperator):
    """Base of ``SmsCampaignOperator`` and ``EmailCampaignOperator``: one message to every recipient in a source.

    The operator reads the source once into a plan on the worker's disk. It then sends in as few requests as the
    contract allows, concurrently, within the connection's rate limit. A later try sends only to recipients that are
    left, even if the source was reordered or edited in between.

    :param source: the recipients. It is a path or ``ObjectStoragePath`` of a CSV, JSON Lines or Parquet file, a source
        of ``cpaas_provider.sources``, or a list. A list holds mappings or plain recipients, such as an upstream
        task's output (templated)
    :param substitutions: the column that fills each placeholder, as a mapping, or as a list if both have the same name.
        Default: each placeholder of the text takes the column of its name. An empty list declares that there are no
        placeholders. Required with ``template_id``
    :param substitution_defaults: the value of a placeholder in rows that have none. Without a default, such a row is
        invalid
    :param recipient_column: the column of the recipients
    :param content: the text or body, with placeholders such as ``{name}``, required unless ``template_id`` is given
        (templated)
    :param sender_id: the sender. Default: the connection's (templated)
    :param template_id: a template that the service stores. It needs ``substitutions`` (templated)
    :param external_ref: a reference of your own. Default: the provider's (templated)
    :param callback: a URL of your own that receives the delivery reports (templated)
    :param results_path: path of the results file, ``.jsonl`` or ``.parquet``, with one line for each row of the source
        (templated)
    :param dry_run: do everything except send requests (templated)
    :param preview_count: number of rendered messages to push as the XCom ``preview``, with masked recipients
        (templated)
    :param test_recipients: recipients to send to first, alone, as rows of a source. If one of them is rejected or
        unknown, the campaign ends (templated)
    :param test_only: end after the test recipients (templated)
    :param max_recipients: refuse a campaign with more recipients. ``unlimited`` sets no limit, as for each limit below
        (templated)
    :param max_charge: highest cost of the campaign over all tries, in the account's currency, by the most careful of
        charge, fall of the balance and ``price_per_page`` (templated)
    :param min_balance: lowest balance of the account that the campaign may leave, in the account's currency (templated)
    :param price_per_page: price of a page (SMS segment) or, for email, of a recipient, if you know it (templated)
    :param on_missing_charge: what to do about answers without a charge, under ``max_charge`` or ``min_balance`` and
        without ``price_per_page``. ``balance`` sends one request after the other and takes the loss of the balance as
        their cost. ``fail`` ends the campaign
    :param send_window: the hours of the day in which sending is allowed, such as ``("09:00", "20:00")``. Outside of
        them the task is deferred. ``always`` sends at any hour, whatever the time zone (templated)
    :param timezone: time zone of the send window, such as ``Africa/Lagos`` (templated)
    :param timezone_column: the column of the recipients' own time zones
    :param suppression_list: recipients to leave out, as a source of its own. Its column is ``recipient_column``
        (templated)
    :param on_invalid_suppression: what to do about invalid rows of the suppression list: ``fail`` before anything is
        sent, or ``skip`` and count them
    :param use_suppression_list: leave out recipients on the suppression list that the provider stores (docs:
        guides/suppressions) (templated)
    :param frequency_cap: how many messages of ``frequency_category`` a recipient may get, over all DAGs, such as ``(3,
        timedelta(days=7))`` for three in seven days, at most 90 days. Recipients at the cap are left out (templated)
    :param frequency_category: the category in which the messages count, such as ``marketing``. Without a
        ``frequency_cap`` they count, and no recipient is left out. Default: ``default``, if there is a cap
    :param frequency_contact: a name that several campaigns share whose messages to a recipient count as one, such as
        the same message over two channels. ``deliver_with_fallback`` sets it. Default: each campaign counts for itself
        (templated)
    :param max_failure_ratio: share of recipients and rows that may fail, 0 to 1, before the task fails. A recipient
        whose phone lookup failed counts (templated)
    :param on_rejected_batch: what to do about a batch that the service rejects as a whole. ``bisect`` splits it, to
        find the recipients it is rejected for and send to the others. ``fail`` counts all of its recipients as
        rejected, and no retry sends to them
    :param max_identical_rejections: end the campaign after so many requests in a row that are rejected with the same
        reason. ``None`` and ``unlimited`` set no limit. Rejections that name recipients do not count (templated)
    :param partition: one of the values of ``partitions(count)``, to map the operator over
    :param idempotency_key: a name under which the campaign is sent once on its channel, by whichever run sends it first
        (templated)
    :param max_pending_requests: highest number of requests with an intent and no result yet. Default:
        ``max_concurrency`` of the connection. A higher number is faster, and leaves more unknown if the task is killed
    :param spool_path: a folder on the worker's disk for the plan. Default: the system's folder for temporary files
    :param progress_interval: seconds between progress log lines
    :param on_unknown: what to do about a request of unknown outcome. ``fail`` sends everything else, fails the task
        without a retry and names the request. ``skip`` lets the task succeed and counts its recipients as unknown.
        ``resend`` sends it again. Ten unknown requests in a row end the try, and the next one sends the rest
    :param unknown_timeout: longest wait for a delivery report to resolve a request of unknown outcome, as a timedelta
        or in seconds, counted from the request. The task is deferred meanwhile. It needs a ``callback_url`` on the
        connection
    :param resend_on_clear: send everything again when the task is cleared. By default a clear sends only what was not
        accepted
    :param stop_grace_period: seconds to wait for responses after Airflow stops the task, or before its
        ``execution_timeout``. Airflow kills a task 5 seconds after it stops it
    :param allow_backfill: let backfills and catch-up runs send, too (templated)
    :param track_recipients: record the recipients in the database, so that ``DeliverySensor`` can name recipients
        without a delivery report. It needs ``callback_url`` on the connection
    :param max_lateness: how long after ``run_after`` any other run may still send, as a timedelta or in seconds.
        ``None`` and ``unlimited`` set no limit (templated)
    :param on_limit: what to do when ``max_recipients``, ``max_charge`` or ``min_balance`` stops the campaign. ``fail``
        fails the task. ``ask`` has the task wait for a user to confirm the figures, under Required Actions in
        Airflow's UI. If they are approved, the campaign continues with the confirmed limit. Otherwise it fails
        (templated)
    :param confirmation_timeout: longest wait for this confirmation, as a timedelta or in seconds. ``None`` waits for
        any time
    """

    template_fields: Collection[str] = (
        "source",
        "content",
        "sender_id",
        "template_id",
        "external_ref",
        "callback",
        "results_path",
        "suppression_list",
        "test_recipients",
        "idempotency_key",
        "frequency_contact",
        *CAMPAIGN_LIMITS,
        "without_sending",
        "cpaas_conn_id",
    )
    typed_fields: ClassVar[Mapping[str, validators.Check]] = TYPED_CAMPAIGN_FIELDS
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = MASKED_CAMPAIGN_FIELDS
    text_fields: ClassVar[tuple[str, ...]] = ("content",)
    """Fields that may have placeholders."""

    encoding: Literal["gsm7"] | None = None
    """Of SMS only."""

    body_fields: ClassVar[tuple[str, ...]]
    """Fields of the request that are the same for all recipients, without the sender."""

    has_task_journal = True
    operation: ClassVar[str]
    operator_extra_links: Any = LazyDeliveryLinks()

    def __init__(
        self,
        *,
        source: Any,
        recipient_column: str,
        content: str | None = None,
        sender_id: str | None = None,
        template_id: str | None = None,
        external_ref: str | None = None,
        callback: str | None = None,
        substitutions: Mapping[str, str] | Sequence[str] | None = None,
        substitution_defaults: Mapping[str, str] | None = None,
        results_path: Any = None,
        dry_run: bool | str = False,
        preview_count: int | str = 0,
        test_recipients: Sequence[Any] | None = None,
        test_only: bool | str = False,
        max_recipients: int | str | None = None,
        max_charge: float | str | None = None,
        min_balance: float | str | None = None,
        price_per_page: float | str | None = None,
        on_missing_charge: Literal["balance", "fail"] = "balance",
        send_window: Sequence[str] | str | None = None,
        timezone: str | None = None,
        timezone_column: str | None = None,
        suppression_list: Any = None,
        on_invalid_suppression: Literal["fail", "skip"] = "fail",
        use_suppression_list: bool | str = True,
        frequency_cap: tuple[int | str, timedelta | float | str] | str | None = None,
        frequency_category: str | None = None,
        frequency_contact: str | None = None,
        max_failure_ratio: float | str = 0.0,
        on_rejected_batch: Literal["bisect", "fail"] = "bisect",
        max_identical_rejections: int | str | None = 20,
        partition: Mapping[str, int] | None = None,
        idempotency_key: str | None = None,
        max_pending_requests: int | None = None,
        spool_path: str | None = None,
        progress_interval: float = 10.0,
        on_unknown: OnUnknown = "fail",
        unknown_timeout: timedelta | float = timedelta(minutes=10),
        resend_on_clear: bool = False,
        stop_grace_period: float = STOP_GRACE_PERIOD,
        allow_backfill: bool | str = False,
        track_recipients: bool = False,
        max_lateness: timedelta | float | str | None = timedelta(days=1),
        on_limit: Literal["fail", "ask"] | str = "fail",
        confirmation_timeout: timedelta | float | None = timedelta(days=1),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_arguments(locals())
        validators.require_text(self)
        self._check_arguments()

    def dnd_options(self) -> DndOptions | None:
        """Return the options of the do-not-disturb filter, ``None`` without one."""
        return None

    def build_spec(self) -> CampaignSpec:
        """Return the campaign as plain values, from the rendered arguments."""
        from cpaas_provider.tasks.campaign.spec import CampaignSpec

        body = {name: self.rendered(name) for name in self.body_fields}
        spec = self._build_spec(
            CampaignSpec,
            source_summary=self.source,
            body=body,
            dnd=self.dnd_options(),
            templates=self._typed_templates,
        )
        return replace(spec, send_window=None) if spec.send_window == validators.ALWAYS else spec

    def make_attempt(self, runtime: TaskRuntime, **resumed: Any) -> Attempt:
        """Return one try of the campaign.

        :param resumed: ``started_in_time``: the run was not stale when the campaign began, so it is not checked again;
            ``resends``: the number of resends that the try made
        """
        from cpaas_provider.tasks.campaign.runner import CampaignRunner

        return CampaignRunner(self.build_spec(), runtime, **resumed)

    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Context,
        jinja_env: jinja2.Environment,
        seen_oids: set[int],
    ) -> None:
        """Render, after what the other partitions must know of this one, because this try may fail at any moment."""
        if parent is self and context["ti"].try_number > 1 and self.idempotency_key is None:
            from cpaas_provider.tasks.campaign.mapped_partitions import push_begun

            push_begun(context)
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)

    @classmethod
    def _before_unmapping_fails(cls, context: Context) -> None:
        from cpaas_provider.tasks.campaign.mapped_partitions import push_begun

        push_begun(context)

    def _check_together(self, options: Mapping[str, Any]) -> None:
        validators.check_send_window(options["send_window"], options["timezone"], options["timezone_column"])
        validators.check_test_only(options["test_only"], options["test_recipients"])

    def _check_arguments(self) -> None:
        """Refuse arguments that cannot work, where the DAG is written."""
        try:
            if self.template_id is not None and self.substitutions is None:
                raise ValueError(
                    "a campaign with template_id needs substitutions. The service stores the template, so the "
                    "provider cannot read its placeholders. Without values, recipients would read the placeholders. "
                    "Name the columns that fill them, such as substitutions=['name']. If the template has none, give "
                    "substitutions=[]."
                )
            if validators.is_final((self.send_window, self.timezone)):
                validators.check_send_window(self.send_window, self.timezone, self.timezone_column)
            if validators.is_final(self.test_only):
                validators.check_test_only(self.test_only, self.test_recipients)
            if not isinstance(self.recipient_column, str) or not self.recipient_column:
                raise ValueError("recipient_column must be the name of a column.")
            if self.substitution_defaults is not None and not isinstance(self.substitution_defaults, Mapping):
                raise ValueError("substitution_defaults must be a mapping from placeholders to values.")
            validators.check_partition(self.partition, self.results_path)
            if self.idempotency_key is not None and self.resend_on_clear:
                raise ValueError(
                    "idempotency_key cannot be combined with resend_on_clear. To send the campaign again, give it "
                    "another idempotency_key."
                )
        except ValueError as error:
            raise ValueError(f"{self}: {error}") from None
