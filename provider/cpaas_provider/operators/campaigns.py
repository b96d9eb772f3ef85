"""What SMS and email campaigns have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cpaas_provider.operators import _arguments as arguments
from cpaas_provider.operators import _summaries as summaries
from cpaas_provider.operators.sends import SendOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.api.client import AsyncCpaasClient, CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.operators._campaigning import Campaigning
    from cpaas_provider.sending.campaign.message import Channel

PRIVATE_CAMPAIGN_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "source": summaries.source,
    "content": summaries.text,
    "suppression_list": summaries.source,
    "test_recipients": summaries.entries,
    "callback": summaries.url,
}

PREVIEW_KEY = "preview"
"""The XCom under which rendered messages are left where an author asks to see some."""


def partitions(count: int) -> list[dict[str, int]]:
    """Return ``count`` parts of a campaign to map its operator over, as plain JSON.

    .. code-block:: python

        SmsCampaignOperator.partial(task_id="send", source=..., content=...).expand(partition=partitions(4))

    Everybody belongs to one part, and duplicates to the same. Rate, concurrency and ``max_charge`` are divided among
    the parts. The count must stay the same for the retries and clears of a run: each part knows only whom it sent to
    itself.

    :param count: how many, 1 to 1,000
    """
    from cpaas_provider.sending.campaign.partitions import partitions as parts

    return parts(count)


class CampaignOperator(SendOperator):
    """Base of ``SmsCampaignOperator`` and ``EmailCampaignOperator``: one message to everybody a source names.

    The source is read once into a plan on the worker's disk; then everybody is sent to in as few requests as the
    contract allows, concurrently, within the connection's rate limit. Whatever ends a try, the next one sends to those
    who are left, also where the source was put in another order or edited meanwhile.

    :param source: who it is for: a path or ``ObjectStoragePath`` of a CSV, JSON Lines or Parquet file, a source of
        ``cpaas_provider.sources``, or a list of mappings or of plain recipients, e.g. from an upstream task (templated)
    :param substitutions: which column fills which placeholder, as a mapping, or as a list where they are called alike;
        default: the placeholders of the text, each from the column of its name; an empty list: there are none, whatever
        looks like some. Beside ``template_id`` it must be given
    :param substitution_defaults: what stands for a placeholder where a row has no value; without it such a row is set
        aside
    :param recipient_column: the column of the recipients
    :param results_path: where the outcome file goes, ``.jsonl`` or ``.parquet``: one line a row of the source
        (templated)
    :param dry_run: do everything but the requests
    :param preview_count: how many rendered messages to leave in the XCom ``preview``, recipients masked
    :param test_recipients: who is sent to first, alone, as the rows of a source; what is rejected or unknown there ends
        the campaign (templated)
    :param test_only: end after the test recipients
    :param max_recipients: refuse a campaign for more
    :param max_charge: what it may cost in all its tries, in the account's currency
    :param min_balance: what must be left of the account's balance
    :param price_per_page: what a page (SMS) or a recipient (email) costs, where you know it
    :param on_missing_charge: about answers that do not say what they cost, under ``max_charge`` or ``min_balance`` and
        without ``price_per_page``: ``balance`` goes on, one request after the other, by what the balance loses;
        ``fail`` ends the campaign
    :param send_window: from when to when a day people may be reached, such as ``("09:00", "20:00")``; outside of it the
        task is deferred
    :param timezone: of the send window, such as ``Africa/Lagos``
    :param timezone_column: the column of the recipients' own time zones
    :param suppression_list: who must not be sent to, as a source of its own; its column is ``recipient_column``
        (templated)
    :param on_invalid_suppression: about rows of that list that cannot be read: ``fail`` before anything is sent, or
        ``skip`` and count them
    :param max_failure_ratio: which share of recipients and rows may fail, 0 to 1, before that fails the task
    :param on_rejected_batch: about a batch that the service rejects as a whole: ``bisect`` it, to find those it is
        rejected for and send to the others, or ``fail``: all of its recipients count as rejected, and no retry sends
        to them
    :param max_identical_rejections: end the campaign when so many requests in a row are rejected with the same words,
        and none is accepted meanwhile; ``None`` for never. Rejections that name recipients do not count
    :param partition: one of what ``partitions(count)`` returns, to map the operator over
    :param idempotency_key: a name under which this campaign happens once, whatever run asks for it (templated)
    :param max_pending_requests: requests that may be claimed and not yet settled; default: ``max_concurrency`` of the
        connection. More is faster, and leaves more unknown when the task is killed
    :param spool_path: a folder of the worker's disk for the plan; default: the system's for temporary files
    :param progress_interval: seconds between two words of progress
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
        "cpaas_conn_id",
    )
    private_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = PRIVATE_CAMPAIGN_FIELDS
    text_fields: ClassVar[tuple[str, ...]] = ("content",)
    """Fields in which placeholders may stand."""

    content: str | None
    template_id: str | None
    external_ref: str | None

    def __init__(
        self,
        *,
        source: Any,
        recipient_column: str,
        substitutions: Mapping[str, str] | Sequence[str] | None = None,
        substitution_defaults: Mapping[str, str] | None = None,
        results_path: Any = None,
        dry_run: bool = False,
        preview_count: int = 0,
        test_recipients: Sequence[Any] | None = None,
        test_only: bool = False,
        max_recipients: int | None = None,
        max_charge: float | None = None,
        min_balance: float | None = None,
        price_per_page: float | None = None,
        on_missing_charge: Literal["balance", "fail"] = "balance",
        send_window: Sequence[str] | None = None,
        timezone: str | None = None,
        timezone_column: str | None = None,
        suppression_list: Any = None,
        on_invalid_suppression: Literal["fail", "skip"] = "fail",
        max_failure_ratio: float = 0.0,
        on_rejected_batch: Literal["bisect", "fail"] = "bisect",
        max_identical_rejections: int | None = 20,
        partition: Mapping[str, int] | None = None,
        idempotency_key: str | None = None,
        max_pending_requests: int | None = None,
        spool_path: str | None = None,
        progress_interval: float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.recipient_column = recipient_column
        self.substitutions = substitutions
        self.substitution_defaults = substitution_defaults
        self.results_path = results_path
        # BaseOperator has a method of this name.
        self.without_sending = self._checked(arguments.switch, dry_run=dry_run)
        self.preview_count = self._checked(arguments.whole_from(0), preview_count=preview_count)
        self.test_recipients = test_recipients
        self.test_only = self._checked(arguments.switch, test_only=test_only)
        self.max_recipients = self._checked(arguments.or_none(arguments.whole_from(1)), max_recipients=max_recipients)
        self.max_charge = self._checked(arguments.amount_or_none, max_charge=max_charge)
        self.min_balance = self._checked(arguments.amount_or_none, min_balance=min_balance)
        self.price_per_page = self._checked(arguments.amount_or_none, price_per_page=price_per_page)
        self.on_missing_charge = self._checked(arguments.one_of("balance", "fail"), on_missing_charge=on_missing_charge)
        self.send_window = send_window
        self.timezone = timezone
        self.timezone_column = timezone_column
        self.suppression_list = suppression_list
        self.on_invalid_suppression = self._checked(
            arguments.one_of("fail", "skip"), on_invalid_suppression=on_invalid_suppression
        )
        self.max_failure_ratio = self._checked(arguments.share, max_failure_ratio=max_failure_ratio)
        self.on_rejected_batch = self._checked(arguments.one_of("bisect", "fail"), on_rejected_batch=on_rejected_batch)
        self.max_identical_rejections = self._checked(
            arguments.or_none(arguments.whole_from(1)), max_identical_rejections=max_identical_rejections
        )
        self.partition = partition
        self.idempotency_key = idempotency_key
        self.keyed = idempotency_key is not None
        self.max_pending_requests = self._checked(
            arguments.or_none(arguments.whole_from(1)), max_pending_requests=max_pending_requests
        )
        self.spool_path = spool_path
        self.progress_interval = self._checked(arguments.seconds, progress_interval=progress_interval)
        self._refuse_what_cannot_be()

    @property
    def message_type(self) -> Channel:
        """Return how the message names those it reaches."""
        raise NotImplementedError

    def body(self, connection: CpaasConnection) -> dict[str, Any]:
        """Return what is the same for all recipients, or fail the task."""
        raise NotImplementedError

    async def send(
        self,
        client: AsyncCpaasClient,
        body: Mapping[str, Any],
        recipients: Sequence[str],
        personalisation: list[dict[str, Any]] | None,
        reference: str,
        campaign: str | None = None,
    ) -> Any:
        """Send the message to some of the recipients.

        :param campaign: the campaign's reference
        """
        return await getattr(client, self.message_type.operation)(
            recipients,
            **body,
            personalisation=personalisation,
            external_ref=self.external_ref or reference,
            callback=self.callback_url(reference, len(recipients), campaign),
        )

    def carry_out(
        self, context: Context, client: CpaasClient, connection: CpaasConnection, give_up_at: str | None
    ) -> Any:
        """Run the campaign, or what is left of it."""
        from cpaas_provider.api.errors import CpaasError
        from cpaas_provider.operators._campaigning import Campaigning
        from cpaas_provider.sending.errors import LaterError

        with contextlib.ExitStack() as open_things:
            campaigning = Campaigning(self, context, client, connection, self._listen(), open_things)
            with (
                self._understood_by_airflow(give_up_at, campaigning.push_report),
                self._ended_for_good(context, campaigning),
            ):
                self._track(context, connection, open_things)
                try:
                    report = campaigning.run()
                except (LaterError, CpaasError):
                    # Cleared while it waits, the task would else take its silence for lost words.
                    self._note_no_claim(context)
                    raise
                if self.without_sending:
                    self._note_no_claim(context)
                return report

    @contextlib.contextmanager
    def _ended_for_good(self, context: Context, campaigning: Campaigning) -> Iterator[None]:
        """Have it noted to how many was sent, once no try will go on: what is delivered can then be told from it."""
        from cpaas_provider.sending.errors import LaterError

        try:
            yield
        except LaterError:
            raise
        except Exception as error:
            instance: Any = context["ti"]
            tried_again = getattr(error, "retryable", not getattr(error, "for_good", False))
            if not tried_again or instance.try_number > instance.max_tries:
                campaigning.note_end()
            raise
        else:
            campaigning.note_end()

    def log_begin(self, client: CpaasClient, connection: CpaasConnection) -> None:
        """Leave it to the try, which knows its part."""

    def log_end(self, result: Any) -> None:
        """Leave it to the try, which logs it also where the task fails."""

    def execute_after_wait(
        self, context: Context, event: Any = None, give_up_at: str | None = None, begun: bool = False
    ) -> Any:
        """Go on after the time the service or the send window asked for.

        :param begun: whether the campaign had begun in time, so that it is not late now
        """
        self._begun = begun
        return super().execute_after_wait(context, event, give_up_at)

    def _note_no_claim(self, context: Context) -> None:
        """Say so only where claims would stand beside it: those of a campaign that happens once lie elsewhere."""
        if self.idempotency_key is None:
            super()._note_no_claim(context)

    def after_wait(self, give_up_at: str | None) -> dict[str, Any]:
        """Return what a deferred task is told when it goes on: it has begun, or was about to, and in time."""
        return {**super().after_wait(give_up_at), "begun": True}

    def _refuse_wrong_kinds(self) -> None:
        if not isinstance(self.recipient_column, str) or not self.recipient_column:
            raise ValueError("recipient_column must be the name of a column.")
        if self.substitution_defaults is not None and not isinstance(self.substitution_defaults, Mapping):
            raise ValueError("substitution_defaults must be a mapping from placeholders to words.")
        if self.results_path is not None:
            from cpaas_provider.api.bounds import file_name
            from cpaas_provider.sending.campaign.outcomes import SUFFIXES

            file_name(SUFFIXES)("results_path", self.results_path)
        parted = isinstance(self.partition, Mapping) and self.partition.get("of", 1) > 1
        if parted and isinstance(self.results_path, str) and "map_index" not in self.results_path:
            raise ValueError(
                "results_path must differ from part to part, or one would overwrite the other: put "
                "{{ ti.map_index }} into it."
            )

    def _refuse_what_cannot_be(self) -> None:
        """Refuse what can be told to be wrong where the DAG is written."""
        try:
            if self.send_window is not None:
                from cpaas_provider.sending.campaign.hours import SendWindow

                SendWindow.read(self.send_window, self.timezone or (self.timezone_column and "UTC"))
            elif self.timezone or self.timezone_column:
                raise ValueError("timezone and timezone_column say when a send_window is open, and there is none.")
            if isinstance(self.partition, Mapping):
                from cpaas_provider.sending.campaign.partitions import Partition

                Partition.read(self.partition)
            if self.test_only and self.test_recipients is None:
                raise ValueError("test_only needs test_recipients.")
            self._refuse_wrong_kinds()
            if self.idempotency_key is not None and self.resend_on_clear:
                raise ValueError(
                    "idempotency_key happens once; to send again, give it another one, not resend_on_clear."
                )
        except ValueError as error:
            raise ValueError(f"{self}: {error}") from None
