"""A journal as a state store holds it, read without the provider's code."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

KEY = "cpaas_journal"
_MEMBER_BYTES = 9
_WORDS_BYTES = 6
_SEGMENTS_OF_A_TRY = 1_000_000
_PRECEDENCE = {"not_sent": 0, "rejected": 1, "pending": 2, "unknown": 2, "accepted": 3}


def is_key(key: str) -> bool:
    """Tell whether a part of a journal stands under a key."""
    return key == KEY or key.startswith(f"{KEY}.")


def is_of_try(key: str, number: int) -> bool:
    """Tell whether a try stored a part of a journal under a key, or somebody who decided a request during that try."""
    if not is_key(key):
        return False
    index = int((key.removeprefix(KEY).split(".")[1:] or (0,))[0])
    return index // _SEGMENTS_OF_A_TRY == number - 1


def segments(stored: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what stands under the keys of a journal, in order, less what was put together since."""
    places: dict[tuple[int, int], dict[str, Any]] = {}
    whole = set()
    for key, value in stored.items():
        if not is_key(key):
            continue
        index, *part = (int(one) for one in key.removeprefix(KEY).split(".")[1:] or (0, 0))
        places[(index, part[0] if part else -1)] = json.loads(value) if isinstance(value, str) else value
        if not part:
            whole.add(index)
    return [value for (index, part), value in sorted(places.items()) if part < 0 or index not in whole]


def batches(stored: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what each write added, of the newest repetition of the send."""
    found = segments(stored)
    for segment in found:
        if all(segment[name] == found[-1][name] for name in ("key_id", "resend_epoch")):
            yield from map(json.loads, segment["batches"])


def requests(stored: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what is known of the requests of each reference: the strongest they came to, the newest of several."""
    made: dict[int, dict[str, Any]] = {}
    for batch in batches(stored):
        for number, reference, members, words, *more in batch["intents"]:
            snapshot, unknown = more or (None, None)
            made.setdefault(
                number,
                {
                    "reference": reference,
                    "state": "pending",
                    "recipient_hashes": _hashes(members, _MEMBER_BYTES),
                    "personal": _hashes(words, _WORDS_BYTES) or None,
                    "body": batch["body"],
                    "started_at": batch["at"] if batch["body"] else None,
                    "try_number": batch["try"],
                    "probe_snapshot": snapshot,
                    "previous_unknown": unknown or None,
                },
            )
        for number, state, told, reason, resolution, *more in batch["results"]:
            left_out, extra, *_ = (*more, None, None)
            if number in made and made[number]["state"] != "accepted":
                gone = set(_hashes(left_out or "", _MEMBER_BYTES))
                result = extra or {
                    name: fact
                    for name, fact in zip(("id", "charge", "balance"), told or (), strict=False)
                    if fact is not None
                }
                made[number].update(
                    state=state,
                    result=result or None,
                    reason=reason,
                    resolution=resolution,
                    recipient_hashes=[one for one in made[number]["recipient_hashes"] if one not in gone],
                )
    found: dict[str, dict[str, Any]] = {}
    for facts in made.values():
        reference = facts["reference"]
        if _in_part(facts, made.values()):
            facts["unknown_for_others"] = True
        if reference in found and _PRECEDENCE[found[reference]["state"]] > _PRECEDENCE[facts["state"]]:
            continue
        found[reference] = {name: fact for name, fact in facts.items() if fact is not None and name != "reference"}
    return found


def accepted_ids(stored: Mapping[str, Any], reference: str) -> set[str | None]:
    """Return the ids of the messages that the requests of a reference are recorded to have made."""
    numbers, ids = set(), set()
    for batch in batches(stored):
        numbers |= {intent[0] for intent in batch["intents"] if intent[1] == reference}
        for number, state, told, _, _, *more in batch["results"]:
            if number in numbers and state == "accepted":
                extra = more[1] if len(more) > 1 else None
                ids.add((extra or {}).get("id") or (told or (None,))[0])
    return ids


def _in_part(facts: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> bool:
    """Tell whether another request of the same reference is unknown for recipients that this one does not go to."""
    return facts["state"] == "accepted" and any(
        one["reference"] == facts["reference"]
        and one["state"] in {"pending", "unknown"}
        and not set(one["recipient_hashes"]) <= set(facts["recipient_hashes"])
        for one in others
    )


def _hashes(packed: str, size: int) -> list[str]:
    data = b64decode(packed)
    return [data[place : place + size].hex() for place in range(0, len(data), size)]
