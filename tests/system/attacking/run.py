"""One run: honest reports at a steady rate, all attacks at the same time, and what is found afterwards."""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from cpaas_provider.delivery.callbacks.signatures import sign
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from tests.system.attacking.attackers import (
    EXPIRED,
    OTHERS,
    OWN,
    PRUNED,
    PRUNED_AFTER,
    REPLAYED,
    Attack,
    attack_until_over,
)
from tests.system.attacking.places import (
    HEADER,
    HONEST,
    MALLORY,
    UI_PASSWORD,
    UI_USER,
    WEBHOOK_SECRET,
    Place,
)

RATE = 20.0
HONEST_TIMEOUT = 30.0
TRIES = 10
MOST_REFUSED = 0.01
PAGE_SECONDS = 30.0
PAGE_PAUSE = 0.5
ANEW = " by a new connection"
START_PAGE, DATA = "/", "/api/v2/dags"
"""Pages of Airflow's UI: its HTML, and what it shows there, which takes a user and Airflow's database."""

# How an attack may be answered that must not be taken; 503 too, as long as it is the attacked connection's own crowd.
REFUSED = {
    "forged_token": {"404", "503"},
    "token_of_another_connection": {"404", "503"},
    "token_made_into_another_request_s": {"404", "503"},
    "expired_token": {"404", "503"},
    "replay_of_what_was_pruned": {"404", "503"},
    "signature_of_another_connection": {"401", "503"},
    "other_spelling": {"404", "503"},
    "slow_without_signature": {"401", "503"},
    "made_up_name": {"404", "503"},
}


@dataclass
class Seen:
    """What a run showed.

    :param first: how honest reports were answered at their first try
    :param lost: honest reports that were acknowledged and are not in the database
    :param strange: what is in the database for the honest connection and was not sent for it
    :param expired: what is in the database although its callback URL had expired, or what it repeats was pruned
    :param pages: how pages of Airflow's UI were answered, and how long that took at most
    """

    sent: int = 0
    first: Counter[str] = field(default_factory=Counter)
    unacknowledged: int = 0
    lost: int = 0
    strange: int = 0
    waited: list[float] = field(default_factory=list)
    expired: int = 0
    pages: dict[str, Counter[str]] = field(default_factory=dict)
    longest: dict[str, float] = field(default_factory=dict)
    attacks: dict[str, Counter[str]] = field(default_factory=dict)
    memory: tuple[int, int] = (0, 0)
    log: str = ""

    def violations(self, *, mounted: bool) -> list[str]:
        """Return what must not be, in words."""
        refused = self.sent - self.first["200"]
        found = [
            (self.lost, f"{self.lost} acknowledged reports are lost"),
            (self.unacknowledged, f"{self.unacknowledged} honest reports were never acknowledged"),
            (self.strange, f"{self.strange} reports of others are stored for the honest connection"),
            (refused > MOST_REFUSED * self.sent, f"{refused} of {self.sent} honest reports were refused: {self.first}"),
            (self.expired, f"{self.expired} reports are stored that came too late to be told from replays"),
            ("Traceback" in self.log, "a traceback is in the log"),
            (any(one.reference in self.log for one in (OWN, OTHERS, EXPIRED, PRUNED)), "a token is in the log"),
        ]
        for page in (f"{page}{by}" for page in (START_PAGE, DATA) for by in ("", ANEW)) if mounted else ():
            answers = self.pages.get(page, Counter())
            failed = answers.total() - answers["200"]
            # Whoever connects anew stands in line with all who do.
            bad = failed > (MOST_REFUSED * answers.total() if page.endswith(ANEW) else 0) or not answers["200"]
            found.append((bad, f"Airflow's page {page} was answered {dict(answers)}"))
        for kind, allowed in REFUSED.items():
            answers = self.attacks.get(kind, Counter())
            odd = set(answers) - allowed - {"none"}
            found.append((bool(odd), f"{kind} was answered {sorted(odd)}"))
            found.append((not set(answers) & allowed, f"{kind} was never answered: {dict(answers)}"))
        return [words for is_so, words in found if is_so]

    def __str__(self) -> str:
        waited = sorted(self.waited) or [0.0]
        lines = [
            f"{self.sent} honest reports: first answers {dict(self.first)}, "
            f"median {waited[len(waited) // 2] * 1000:.0f} ms, p99 {waited[int(len(waited) * 0.99)] * 1000:.0f} ms",
            f"memory {self.memory[0] >> 20} to {self.memory[1] >> 20} MiB, log {len(self.log.splitlines())} lines",
            *(f"  {page}: {dict(answers)}, {self.longest[page]:.1f} s at most" for page, answers in self.pages.items()),
            *(f"  {kind}: {dict(answers)}" for kind, answers in sorted(self.attacks.items())),
        ]
        return "\n".join(lines)


class _Honest:
    """Reports on a connection of their own by turns at both doors, each sent again until it is acknowledged."""

    def __init__(self, place: Place, seen: Seen) -> None:
        self._place = place
        self._seen = seen
        self._path = place.path(CallbackToken("honest", "honest-1", 100_000))
        self.acknowledged: set[str] = set()

    async def send_at_rate(self, seconds: float) -> None:
        limits = httpx.Limits(max_keepalive_connections=20, keepalive_expiry=2)
        async with httpx.AsyncClient(
            base_url=self._place.url, timeout=HONEST_TIMEOUT, trust_env=False, verify=False, limits=limits
        ) as client:
            begun, running = time.monotonic(), set[asyncio.Task[None]]()
            for number in itertools.count():
                if (due := begun + number / RATE) > begun + seconds:
                    break
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                running.add(asyncio.create_task(self._send(client, number)))
            await asyncio.gather(*running)

    async def _send(self, client: httpx.AsyncClient, number: int) -> None:
        said = {"id": f"honest-{number}", "recipient": f"23480300{number:05d}", "status": "delivered"}
        body = json.dumps(said).encode()
        headers = {"content-type": "application/json", HEADER: sign(body, WEBHOOK_SECRET[HONEST])}
        path = self._path if number % 2 else f"/cpaas/webhook/{HONEST}"
        self._seen.sent += 1
        for attempt in range(TRIES):
            begun = time.monotonic()
            try:
                answer = str((await client.post(path, content=body, headers=headers)).status_code)
            except httpx.TransportError as error:
                answer = type(error).__name__
            if attempt == 0:
                self._seen.first[answer] += 1
                self._seen.waited.append(time.monotonic() - begun)
            if answer == "200":
                self.acknowledged.add(body.decode())
                return
            await asyncio.sleep(0.5)
        self._seen.unacknowledged += 1


def allow_files(count: int) -> None:
    """Let this process have as many files as its attackers need connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _look_at_pages(place: Place, seen: Seen, over: asyncio.Event, *, anew: bool) -> None:
    """Ask for pages as somebody does who has logged in before, by one connection or each time by a new one."""
    limits = httpx.Limits(max_keepalive_connections=0 if anew else 1)
    async with httpx.AsyncClient(
        base_url=place.url, timeout=PAGE_SECONDS, trust_env=False, verify=False, limits=limits
    ) as client:
        entered = await client.post("/auth/token", json={"username": UI_USER, "password": UI_PASSWORD})
        client.headers["Authorization"] = f"Bearer {entered.raise_for_status().json()['access_token']}"
        while not over.is_set():
            for page in (START_PAGE, DATA):
                begun = time.monotonic()
                answer, name = await _answer_of(client, page), page + (ANEW if anew else "")
                seen.pages.setdefault(name, Counter())[answer] += 1
                seen.longest[name] = max(seen.longest.get(name, 0.0), time.monotonic() - begun)
            await asyncio.sleep(PAGE_PAUSE)


async def _answer_of(client: httpx.AsyncClient, page: str) -> str:
    """Return its status, or what was wrong with it."""
    try:
        # For all of it: each read may take as long by itself.
        async with asyncio.timeout(PAGE_SECONDS):
            answer = await client.get(page)
    except (httpx.TransportError, TimeoutError) as error:
        return type(error).__name__
    if answer.status_code != 200:
        return str(answer.status_code)
    is_it = "<html" in answer.text if page == START_PAGE else "total_entries" in answer.json()
    return "200" if is_it else "200, another page"


def _have_replays_pruned(place: Place) -> None:
    """Send what will be replayed, and prune it."""
    headers = {"content-type": "application/json"}
    with httpx.Client(base_url=place.url, timeout=HONEST_TIMEOUT, trust_env=False, verify=False) as client:
        for body in REPLAYED:
            client.post(place.path(PRUNED, MALLORY), content=body, headers=headers).raise_for_status()
    if place.stored_of(PRUNED.campaign) != len(REPLAYED):
        raise RuntimeError("What is to be replayed was not stored.")
    place.prune_all(PRUNED_AFTER)


def attacked(place: Place, seconds: float) -> Seen:
    """Attack a receiver while honest reports come in, and return what was seen.

    The attackers have a thread of their own, lest they keep the honest ones from their clock.
    """
    allow_files(8000)
    seen = Seen()
    honest = _Honest(place, seen)
    _have_replays_pruned(place)
    before = place.memory()
    attack: list[tuple[asyncio.AbstractEventLoop, Attack]] = []
    begun = threading.Event()

    async def attacking() -> None:
        attack.append((asyncio.get_running_loop(), Attack(place, asyncio.Event())))
        begun.set()
        await attack_until_over(attack[0][1])

    async def being_honest() -> None:
        over = asyncio.Event()
        ways = (False, True) if place.mounted else ()
        pages = [asyncio.create_task(_look_at_pages(place, seen, over, anew=anew)) for anew in ways]
        await honest.send_at_rate(seconds)
        over.set()
        await asyncio.gather(*pages)

    attackers = threading.Thread(target=lambda: asyncio.run(attacking()), daemon=True)
    attackers.start()
    begun.wait()
    try:
        asyncio.run(being_honest())
    finally:
        loop, given = attack[0]
        loop.call_soon_threadsafe(given.over.set)
        attackers.join(60)
    seen.attacks = given.answers
    seen.memory = before, place.memory()
    stored = set(place.stored(HONEST))
    seen.lost = len(honest.acknowledged - stored)
    seen.strange = len(stored - honest.acknowledged)
    seen.expired = sum(place.stored_of(one.campaign) for one in (EXPIRED, PRUNED))
    seen.log = place.log.read_text(errors="replace")
    return seen
