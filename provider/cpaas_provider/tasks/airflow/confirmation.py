"""The confirmation of a limit: a user is asked by Airflow's human-in-the-loop, and the response is in the task state.

The task waits in the state ``awaiting_input`` without a process, a slot or a trigger, and continues on a worker. It
needs the Task SDK of Airflow 3.3, and not the standard provider, whose operators do the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct, field
from msgspec.structs import asdict

from cpaas_provider.api.amounts import counted
from cpaas_provider.sending.errors import NotConfirmedError
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from cpaas_provider.tasks.runtime import TaskRuntime

STATE_KEY = "cpaas_confirmation"
"""The key of the confirmation in the task state."""

APPROVE, REJECT = OPTIONS = ["Approve", "Reject"]
RESUME_METHOD = "resume_after_answer"


class Answer(StrEnum):
    """What a user responded."""

    NONE = "none"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"


class Question(Struct, frozen=True):
    """What a user is asked. It has counts and amounts, and nothing personal.

    :param reason: what ended the try, as the task would have failed with it
    :param figures: what the form shows, by its name
    :param limits: the limits that the task continues with if it is approved: counts, or amounts as text
    :param done: what was done before, as the task compares it later
    """

    reason: str
    figures: Mapping[str, str]
    limits: Mapping[str, int | str]
    done: Mapping[str, int] = field(default_factory=dict)


class Confirmation(Struct, frozen=True):
    """What a user was asked in a task instance since it was last cleared.

    :param epoch: the clear since which it counts
    :param asked_by: the id of the task instance in the try that asked
    :param reason: what ended that try
    :param limits: the limits that were asked for
    :param done: what was done before
    """

    epoch: str
    asked_by: str
    reason: str
    limits: Mapping[str, int | str]
    done: Mapping[str, int]
    answer: Answer = Answer.NONE

    @property
    def confirmed(self) -> Mapping[str, int | str]:
        """The limits that were approved, by their names."""
        return self.limits if self.answer is Answer.APPROVED else {}

    @property
    def refusal(self) -> str:
        """The message of a task that was not approved, empty for any other."""
        if self.answer is Answer.REJECTED:
            return f"{self.reason} A user was asked to confirm it, and rejected it."
        if self.answer is Answer.EXPIRED:
            return f"{self.reason} A user was asked to confirm it, and confirmation_timeout passed without a response."
        return ""


class Confirmations:
    """The confirmation of one task instance."""

    def __init__(self, runtime: TaskRuntime) -> None:
        self._runtime = runtime

    def read(self) -> Confirmation | None:
        """Return what was asked since the task was last cleared, ``None`` if nothing was.

        :raises PreflightError: when the task state store cannot be used
        """
        store = self._runtime.require_task_state()
        try:
            stored = store.get(STATE_KEY)
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds
            raise _unavailable(error) from None
        if not isinstance(stored, dict):
            return None
        # Airflow counts the clears of all tasks of a run. One that did not end this try was of another task.
        if self._epoch != stored.get("epoch") and self._try_id != stored.get("asked_by"):
            return None
        return Confirmation(**{**stored, "answer": Answer(stored["answer"])})

    def may_ask(self) -> bool:
        """Return whether this try may ask. The form of a try cannot be changed, so each try asks once at most."""
        earlier = self.read()
        return earlier is None or earlier.asked_by != self._try_id

    def ask(self, question: Question, timeout: timedelta | None, kwargs: Mapping[str, Any]) -> NoReturn:
        """Ask a user, and let the task wait for the response.

        :param timeout: how long it waits, ``None`` for any time
        :param kwargs: values that the operator's ``resume_after_answer`` gets
        :raises TaskAwaitingInput: always, unless it cannot ask
        :raises PreflightError: when Airflow cannot be reached
        :raises NotConfirmedError: when Airflow shows the form of an earlier question, which has other figures
        """
        from airflow.sdk.exceptions import TaskAwaitingInput

        from cpaas_provider.tasks.airflow.supervisor import show_form

        runtime = self._runtime
        self._write(
            Confirmation(self._epoch, self._try_id, question.reason, dict(question.limits), dict(question.done))
        )
        names = " and ".join(question.limits)
        form = f"{runtime.place.task_id} stopped at {names}. Continue?", _form(question, timeout)
        try:
            shown = show_form(self._instance.id, *form, OPTIONS)
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds
            raise PreflightError(
                f"{question.reason} Airflow could not be reached to ask for a confirmation ({type(error).__name__}). "
                "A retry of the task asks again.",
                permanent=False,
            ) from None
        if shown != form:
            # What a user approves must be what the form shows.
            raise NotConfirmedError(
                f"{question.reason} It cannot be confirmed in this run: Airflow retains the form of an earlier "
                "question of this task instance, which has other figures."
            )
        runtime.log.warning(
            "%s The task waits for a user to confirm this, under Required Actions in Airflow's UI.", question.reason
        )
        raise TaskAwaitingInput(method_name=RESUME_METHOD, kwargs=dict(kwargs), timeout=timeout)

    def record_answer(self, event: Any) -> None:
        """Store the response before anything is done with it, so that it outlives this process.

        A response to a question of another try counts as none: the task asks again where it stops.

        :param event: what Airflow gives to the task that continues
        :raises PreflightError: when the task state store cannot be used
        """
        asked = self.read()
        if asked is None or asked.asked_by != self._try_id:
            return
        given = event if isinstance(event, Mapping) else {}
        answer = Answer.REJECTED
        if given.get("error_type") == "timeout":
            answer = Answer.EXPIRED
        elif list(given.get("chosen_options") or ()) == [APPROVE]:
            answer = Answer.APPROVED
        self._write(Confirmation(**{**asdict(asked), "epoch": self._epoch, "answer": answer}))
        limits = ", ".join(f"{name} {value}" for name, value in asked.limits.items())
        self._runtime.log.info("The confirmation of %s was %s.", limits, answer.value)

    def _write(self, confirmation: Confirmation) -> None:
        try:
            self._runtime.require_task_state().set(
                STATE_KEY, {**asdict(confirmation), "answer": confirmation.answer.value}
            )
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds
            raise _unavailable(error) from None

    @property
    def _instance(self) -> Any:
        return self._runtime.context["ti"]

    @property
    def _try_id(self) -> str:
        # Each retry and each clear has an id of its own. A task that continues after a wait keeps it.
        return str(self._instance.id)

    @property
    def _epoch(self) -> str:
        tries = self._runtime.try_info
        return f"{tries.max_tries}:{tries.clear_number}"


def _unavailable(error: Exception) -> PreflightError:
    return PreflightError(
        f"The task state store could not be reached ({type(error).__name__}), so the confirmation of a limit could not "
        "be read or written. Nothing was sent in this try. The task can be retried.",
        permanent=False,
    )


def _span(timeout: timedelta) -> str:
    return str(timeout) if timeout % timedelta(days=1) else counted(timeout.days, "day")


def _form(question: Question, timeout: timedelta | None) -> str:
    """Return the form in Markdown."""
    rows = "\n".join(f"| {name} | {value} |" for name, value in question.figures.items())
    limits = ", ".join(f"`{name}` {value}" for name, value in question.limits.items())
    within = "" if timeout is None else f", or no response within {_span(timeout)}"
    return (
        f"| | |\n|---|---|\n{rows}\n\n"
        f"**{APPROVE}**: the task continues with {limits}. If it finds more than that then, it stops again.\n\n"
        f"**{REJECT}**{within}: the task fails, and nothing further is sent."
    )
