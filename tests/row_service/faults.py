"""Faults of the way between client and service, drawn for each request."""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Iterable
from typing import Protocol

#: `..._before`: the request is not carried out. `..._after`: it is carried out, and the answer does not say so.
#: `in_body`: HTTP 200 with the status in the body (section 7). `404_before` is the 404 of a gateway.
#: `other_row`, `other_id`: a POST is carried out, and the answer has another row, or the id of another row.
FAULTS = (
    "429",
    "429_retry_after",
    "429_in_body",
    "404_before",
    "500_before",
    "500_after",
    "500_in_body_before",
    "500_in_body_after",
    "503_before",
    "503_after",
    "cut_before",
    "cut_after",
    "cut_within",
    "slow",
    "other_row",
    "other_id",
)
OTHER = ("other_row", "other_id")


class Faults(Protocol):
    def draw(self, method: str, path: str, body: bytes) -> str | None:
        """The fault for a request, or None for an answer without a fault."""


class ScriptedFaults:
    """Faults in order of the requests. Items are a fault, None, or `(method, fault)`: the next of that method."""

    def __init__(self, script: Iterable[str | tuple[str, str | None] | None]) -> None:
        self._script = deque(script)
        self._lock = threading.Lock()

    def draw(self, method: str, path: str, body: bytes) -> str | None:
        with self._lock:
            if not self._script:
                return None
            item = self._script[0]
            if isinstance(item, tuple):
                if item[0] != method:
                    return None
                item = item[1]
            self._script.popleft()
            return item


class DrawnFaults:
    """Faults by a seed. The draw depends on the request and how often it came, not on the order of requests.

    :param share: of the requests that get a fault, 0 to 1.
    :param at_most: number of faults that are drawn for the same request before it is answered.
    """

    def __init__(
        self,
        seed: int,
        *,
        share: float = 0.2,
        kinds: Iterable[str] = FAULTS,
        methods: Iterable[str] = ("GET", "POST", "PATCH", "DELETE"),
        at_most: int = 2,
    ) -> None:
        self._seed, self._share, self._at_most = seed, share, at_most
        self._kinds, self._methods = tuple(kinds), frozenset(methods)
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()

    def draw(self, method: str, path: str, body: bytes) -> str | None:
        request = f"{method} {path} {body!r}"
        with self._lock:
            self._seen[request] += 1
            count = self._seen[request]
        if method not in self._methods or count > self._at_most or not self._kinds:
            return None
        drawn = random.Random(f"{self._seed} {request} {count}")
        fault = drawn.choice(self._kinds) if drawn.random() < self._share else None
        # A row that cannot be read while the table and another row can is gone: nothing else would show it.
        is_unfit = (method == "GET" and fault == "404_before") or (method != "POST" and fault in OTHER)
        return None if is_unfit else fault
