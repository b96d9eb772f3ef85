from __future__ import annotations

import copy
import pickle

import pytest

from cpaas_provider.api import errors
from cpaas_provider.api.errors import CpaasError, ErrorItem

KINDS = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CpaasError)),
    key=lambda kind: kind.__name__,
)
ITEM = ErrorItem("recipients", "2348031234567 is blocked", "blocked")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("through", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_error_keeps_its_attributes_over_pickle_and_copy(kind: type[CpaasError], through: object) -> None:
    error = kind("it failed.", operation="send_sms", status=402, retry_after=7.5, items=(ITEM,))
    error.add_note("in window 3")
    back = through(error)  # type: ignore[operator]
    assert type(back) is kind
    assert str(back) == "it failed."
    facts = ("operation", "status", "retry_after", "items", "retryable", "maybe_sent", "__notes__")
    assert [getattr(back, fact) for fact in facts] == [getattr(error, fact) for fact in facts]


@pytest.mark.parametrize(("maybe_sent", "retryable"), [(True, False), (False, True), (True, True)])
def test_unknown_outcome_error_keeps_its_own_attributes_over_a_pickle(maybe_sent: bool, retryable: bool) -> None:
    error = errors.CpaasUnknownOutcomeError("cut off.", maybe_sent=maybe_sent, retryable=retryable, status=200)
    back = pickle.loads(pickle.dumps(error))
    assert (back.maybe_sent, back.retryable, back.status) == (maybe_sent, retryable, 200)


@pytest.mark.parametrize(
    ("kind", "retryable", "maybe_sent"),
    [
        (errors.CpaasConfigurationError, False, False),
        (errors.CpaasInvalidRequestError, False, False),
        (errors.CpaasNotSentError, True, False),
        (errors.CpaasRateLimitedError, True, False),
        (errors.CpaasUnavailableError, True, False),
        (errors.CpaasRejectedError, False, False),
        (errors.CpaasAuthenticationError, False, False),
        (errors.CpaasInsufficientBalanceError, False, False),
        (errors.CpaasNotFoundError, False, False),
        (errors.CpaasNotVerifiedError, False, False),
        (errors.CpaasOperationRemovedError, False, False),
        (errors.CpaasUnknownOutcomeError, False, True),
    ],
)
def test_each_error_class_has_its_retryable_and_maybe_sent(
    kind: type[CpaasError], retryable: bool, maybe_sent: bool
) -> None:
    error = kind("it failed.")
    assert (error.retryable, error.maybe_sent) == (retryable, maybe_sent)


def test_error_items_hold_the_service_message_and_repr_hides_it() -> None:
    error = errors.CpaasRejectedError("refused.", items=(ITEM,))
    assert error.items[0].message == "2348031234567 is blocked"
    assert "2348031234567" not in repr(error) + repr(error.items)
