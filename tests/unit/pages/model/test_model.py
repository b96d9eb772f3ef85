"""A campaign in every order of tries, kills, retries, reports, resolutions, clears and erasures: no page says the
opposite of the truth, and page, JSON and command line say the same."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from cpaas_provider.pages import summaries
from tests.unit.delivery.tracking.model.delivery_setting import Setting
from tests.unit.delivery.tracking.model.delivery_world import RECIPIENTS
from tests.unit.pages.model.campaign_views import CampaignViews
from tests.unit.pages.model.campaign_world import CampaignWorld


class Step(NamedTuple):
    """Something that happens: a method of the world, and its arguments."""

    what: str
    arguments: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.what}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


def step(what: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.just(what), st.fixed_dictionaries(arguments))


NUMBERS = st.integers(0, 3)
LOOK = Step("look", {})
SEND = step(
    "send",
    recipients=st.lists(st.sampled_from(RECIPIENTS), min_size=1, max_size=3, unique=True),
    arrives=st.sampled_from([True, True, False]),
)
RESPOND = step("respond", number=NUMBERS, is_lost=st.sampled_from([False, False, True]))
REPORT = step(
    "report_delivery", number=st.integers(0, 7), word=st.sampled_from(["delivered", "failed", "sent", "clicked"])
)
SELDOM = (
    step("erase", recipient=st.sampled_from(RECIPIENTS)),
    step("prune"),
    step("haunt"),
    st.just(LOOK),
)
DURING = st.lists(st.one_of(SEND, SEND, RESPOND, RESPOND, REPORT, REPORT, step("progress"), *SELDOM), max_size=6)
NOTICED = step("notice", state=st.sampled_from(["up_for_retry", "failed", "queued"]))
KILLED = st.tuples(step("kill", still_runs=st.booleans()), NOTICED).map(list)
ENDS = st.one_of(
    KILLED,
    KILLED,
    step("kill", still_runs=st.booleans()).map(lambda one: [one]),
    step("end", fails=st.booleans(), is_last=st.booleans(), dies=st.sampled_from([False, False, True])).map(
        lambda one: [one]
    ),
    step("defer").map(lambda one: [one]),
)
RESOLVE = step("resolve", number=NUMBERS)
AFTER = st.lists(
    st.one_of(REPORT, REPORT, RESOLVE, RESOLVE, step("clear"), step("forget"), NOTICED, *SELDOM), max_size=4
)
TRIES = st.lists(st.tuples(DURING, ENDS, AFTER), min_size=1, max_size=3)
"""Tries, each with what happens while it is at work, how it ends, and what happens until the next one begins."""


def script_of(tries: list[tuple[list[Step], list[Step], list[Step]]]) -> list[Step]:
    """Return the steps of tries, with a look after each end."""
    return [one for during, end, after in tries for one in (Step("begin", {}), *during, *end, LOOK, *after, LOOK)]


def play(setting: Setting, steps: list[Step], *, is_tracked: bool = False, is_stored: bool = False) -> None:
    """Have steps happen, and compare what is shown at each look and at the end."""
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        for name, value in (("SMALL", -1 if is_stored else 2_000), ("_MIN_AGE", 0.0), ("_AGE_FACTOR", 0)):
            patched.setattr(summaries, name, value)
        world = CampaignWorld(setting, is_tracked=is_tracked)
        views = CampaignViews(world, is_stored=is_stored)
        for number, one in enumerate(steps):
            if one.what == "look":
                if number and steps[number - 1] == LOOK:
                    continue
                lines = views.disagreements(is_last=number >= len(steps) - 2)
                assert not lines, "\n".join([f"after {steps[:number]}:", *lines])
            else:
                getattr(world, one.what)(**one.arguments)


R = list(RECIPIENTS)


def sent(*recipients: str, arrives: bool = True) -> Step:
    return Step("send", {"recipients": list(recipients), "arrives": arrives})


def reported(number: int, word: str = "delivered") -> Step:
    return Step("report_delivery", {"number": number, "word": word})


def happens(what: str, **arguments: Any) -> Step:
    return Step(what, arguments)


BEGINS, ANSWERED = happens("begin"), happens("respond", number=0, is_lost=False)
DIES = [happens("kill", still_runs=False), happens("notice", state="up_for_retry")]
ENDED = happens("end", fails=False, is_last=True, dies=False)
SCENES = {
    "killed before any response, then reported, then sent by the next try": [
        *(
            BEGINS,
            sent(*R[:3]),
            sent(R[3]),
            LOOK,
            happens("kill", still_runs=False),
            LOOK,
            reported(0),
            reported(1),
            LOOK,
        ),
        *(happens("notice", state="up_for_retry"), LOOK, reported(2, "failed"), LOOK),
        *(BEGINS, LOOK, happens("resolve", number=0), ENDED, LOOK, happens("resolve", number=0), LOOK),
        *(happens("resolve", number=0), LOOK, reported(3), LOOK),
    ],
    "request is recorded as accepted after its reports were counted": [
        *(BEGINS, sent(*R), *(reported(number) for number in range(4)), LOOK, ANSWERED, LOOK, ENDED, LOOK),
    ],
    "resolved as sent after its reports were counted": [
        *(BEGINS, sent(*R[:3]), happens("respond", number=0, is_lost=True), reported(0), LOOK, ENDED, LOOK),
        *(happens("resolve", number=0), LOOK, reported(1), reported(2), LOOK),
    ],
    "resolved as not sent, before the end of any try is recorded": [
        *(BEGINS, sent(*R[:2], arrives=False), happens("respond", number=0, is_lost=True), sent(R[2]), ANSWERED),
        *(happens("end", fails=True, is_last=False, dies=False), LOOK, happens("resolve", number=0), LOOK),
    ],
    "report before acceptance": [BEGINS, sent(R[0]), reported(0), LOOK, ANSWERED, LOOK, ENDED, LOOK],
    "replaced try is still at work": [
        *(BEGINS, sent(R[0]), ANSWERED, sent(R[1], arrives=False), happens("kill", still_runs=True), LOOK),
        *(happens("notice", state="queued"), LOOK, BEGINS, happens("haunt"), LOOK, sent(*R[2:]), ANSWERED, LOOK),
        *(ENDED, LOOK, happens("haunt"), LOOK, *(reported(number) for number in range(4)), LOOK),
    ],
    "erased between two pages": [
        *(BEGINS, sent(*R), ANSWERED, reported(0), reported(1, "sent"), ENDED, LOOK, happens("erase", recipient=R[1])),
        *(LOOK, happens("erase", recipient=R[0]), LOOK, happens("prune"), LOOK, reported(2), reported(3), LOOK),
    ],
    "killed between its two last records": [
        *(BEGINS, sent(*R[:2]), ANSWERED, sent(R[2]), LOOK, happens("end", fails=False, is_last=True, dies=True), LOOK),
        *(reported(0), reported(2), LOOK),
    ],
    "cleared, and killed again": [
        *(BEGINS, sent(R[0]), ANSWERED, reported(0), ENDED, LOOK, happens("clear"), LOOK, BEGINS, LOOK, sent(R[1])),
        *(*DIES, LOOK, reported(1), LOOK, BEGINS, LOOK, sent(*R[2:]), ANSWERED, ENDED, LOOK),
    ],
    "cleared, killed, and failing": [
        *(
            BEGINS,
            sent(R[0]),
            ANSWERED,
            ENDED,
            LOOK,
            BEGINS,
            sent(R[1]),
            happens("kill", still_runs=False),
            LOOK,
            BEGINS,
        ),
        *(happens("end", fails=True, is_last=False, dies=False), LOOK, reported(1), LOOK, happens("resolve", number=0)),
        *(LOOK, BEGINS, ENDED, LOOK),
    ],
    "deferred, and killed while it resumes": [
        *(BEGINS, sent(R[0]), ANSWERED, happens("defer"), LOOK, reported(0), LOOK, BEGINS, sent(R[1]), *DIES, LOOK),
    ],
}


@pytest.mark.parametrize("is_stored", [False, True], ids=["counted", "stored"])
@pytest.mark.parametrize("scene", SCENES)
def test_scene(setting: Setting, scene: str, is_stored: bool) -> None:
    play(setting, [*SCENES[scene], LOOK], is_stored=is_stored)


@settings(suppress_health_check=list(HealthCheck))
@given(is_tracked=st.booleans(), is_stored=st.booleans(), tries=TRIES)
def test_no_page_says_the_opposite_of_the_truth(
    setting: Setting, is_tracked: bool, is_stored: bool, tries: list[tuple[list[Step], list[Step], list[Step]]]
) -> None:
    script = script_of(tries)
    note(f"{script}, is_tracked={is_tracked}, is_stored={is_stored}")
    play(setting, script, is_tracked=is_tracked, is_stored=is_stored)
