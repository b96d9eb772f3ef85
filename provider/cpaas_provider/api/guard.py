"""What may refuse the requests of a client just before they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cpaas_provider.api.endpoints import Endpoint
    from cpaas_provider.api.http.wire import OutgoingRequest

PAUSE = 0.25
"""Seconds until a guard is asked again whether a request may be reserved for."""


class RequestGuard:
    """The base of what is asked before each request that changes something or costs money. Reads are never asked for.

    Every attempt is asked for, also the retries that the client makes by itself.
    """

    def admit(self) -> None:
        """Return if the request may leave; this may block.

        :raises CpaasNotSentError: when it may not
        """
        raise NotImplementedError

    async def admit_async(self) -> None:
        """Do what ``admit`` does, for code on an event loop."""
        raise NotImplementedError

    def counts(self, endpoint: Endpoint[Any]) -> bool:
        """Return whether a request to an endpoint must be reserved for."""
        return False

    def reserve(self, endpoint: Endpoint[Any], request: OutgoingRequest) -> Any:
        """Reserve for a request, once for all its attempts. Return ``None`` to be asked again after ``PAUSE``.

        :raises CpaasNotSentError: when the request must not leave
        """
        raise NotImplementedError

    def settle(self, reserved: Any, result: Any = None, error: BaseException | None = None) -> None:
        """Take how a request ended that was reserved for.

        :param result: what the request returned
        :param error: what ended it otherwise
        """

    def close(self) -> None:
        """Release the guard's resources."""
