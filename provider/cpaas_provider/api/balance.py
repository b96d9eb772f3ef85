"""A rejection because the account cannot pay, known by its words.

The contract shows no status for it but 400, which it uses for everything.
"""

from __future__ import annotations

from collections.abc import Iterable

from cpaas_provider.api.endpoints import Endpoint, RetrySafety
from cpaas_provider.api.errors import CpaasInsufficientBalanceError, CpaasRejectedError

_BILLED = frozenset({RetrySafety.UNSAFE, RetrySafety.PURCHASE, RetrySafety.BILLED_READ})
_UNDONE = " Nothing was done."


def judged_by_words(error: CpaasRejectedError, endpoint: Endpoint[object], words: Iterable[str]) -> CpaasRejectedError:
    """Return a rejection as what it is: of the account, where the service's message says that it cannot pay.

    :param words: of which the message then holds one, whatever its capitals
    """
    # Of every other subclass the status tells what it is.
    if type(error) is not CpaasRejectedError or endpoint.retry_safety not in _BILLED:
        return error
    message = " ".join(str(error).lower().split())
    if not any(" ".join(one.lower().split()) in message for one in words):
        return error
    return CpaasInsufficientBalanceError(
        f"{str(error).partition(_UNDONE)[0]}{_UNDONE} Top up the account, then run this again.",
        operation=error.operation,
        status=error.status,
        items=error.items,
    )
