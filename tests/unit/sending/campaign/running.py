"""One try of a campaign against a service that is a function, with a real plan, ledger and journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from cpaas_provider.api.rate_limit import RateLimiter
from cpaas_provider.sending.campaign.campaign import Campaign, CampaignOptions, DndFilterFactory
from cpaas_provider.sending.campaign.loader import Columns, RecipientLoader
from cpaas_provider.sending.campaign.recipients import RecipientStatus, RecipientTable
from cpaas_provider.sending.journal.store import TryInfo
from cpaas_provider.sending.shutdown import StopSignal
from tests.reading import nigerian_reader
from tests.unit.sending.campaign.parts import FIRST_TRY, MemoryStore, Rows, journal_log, message, phones
from tests.unit.sending.ports import FunctionClient, NoDelivery, Ports, send

Service = Callable[[Sequence[str], str], Any]
"""Takes recipients and reference; returns an answer or raises an error."""


def accepted(reference: str, *, charge: float | None = None, balance: float | None = None) -> Any:
    """Return what an accepted request is answered with."""
    told = charge is not None or balance is not None
    meta = SimpleNamespace(estimate=SimpleNamespace(charge=charge, available_balance=balance)) if told else None
    return SimpleNamespace(id=f"id-of-{reference}", meta=meta, rejected_recipients=(), rejection=None)


@dataclass
class Tried:
    """What a try came to."""

    requests: list[tuple[str, ...]] = field(default_factory=list)
    counts: dict[RecipientStatus, int] = field(default_factory=dict)
    error: Exception | None = None

    def of(self, status: RecipientStatus) -> int:
        return self.counts[status]


def tried(
    service: Service,
    count: int,
    *,
    store: MemoryStore | None = None,
    tries: TryInfo = FIRST_TRY,
    per_request: int = 100,
    dnd: DndFilterFactory | None = None,
    source: Rows | None = None,
    banned: Rows | None = None,
    stop: StopSignal | None = None,
    rate_limiter: RateLimiter | None = None,
    **options: Any,
) -> Tried:
    """Make one try at a campaign for so many recipients."""
    done = Tried()

    def answer(fields: dict[str, Any]) -> Any:
        done.requests.append(tuple(fields["recipients"]))
        return service(fields["recipients"], fields["external_ref"])

    said, book = message(), journal_log(store or MemoryStore(), tries)
    with RecipientTable() as plan:
        campaign = Campaign(
            plan,
            book,
            said,
            CampaignOptions(**{"recipients_per_request": per_request, "window": 8, **options}),
            NoDelivery(),
            dnd=dnd,
        )
        planner = RecipientLoader(plan, said, book.hasher, reader=nigerian_reader(said))
        try:
            campaign.prepare(
                planner,
                source or Rows(*(f"+{one}" for one in phones(count))),
                Columns("phone"),
                tests=None,
                suppression_list=banned,
            )
            client = FunctionClient(answer)
            client.rate_limiter = rate_limiter or client.rate_limiter
            send(campaign, client, Ports(stop or StopSignal()))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            done.error = error
        done.counts = plan.counts()
    return done
