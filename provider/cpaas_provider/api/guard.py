"""What may refuse the requests of a client just before they leave."""

from __future__ import annotations


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

    def close(self) -> None:
        """Release the guard's resources."""
