"""Errors that reject a request, in the documented error shape (contract.md 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldError:
    """One item of ``errors``: the offending field, the reason, and a validator's code such as ``missing``."""

    field: str
    message: str
    type: str


@dataclass
class ServiceError(Exception):
    """The service rejects a request; nothing of it was accepted."""

    status: int
    message: str
    errors: Sequence[FieldError] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self, status: int | None = None) -> dict[str, Any]:
        """Return the documented error body; ``status`` replaces the error's own in it."""
        errors = [asdict(error) for error in self.errors]
        return {"status": self.status if status is None else status, "message": self.message, "errors": errors}


def invalid(errors: Sequence[FieldError]) -> ServiceError:
    """Return the 400 that names every offending field at once."""
    return ServiceError(400, "The request is not valid", errors)


def invalid_field(name: str, message: str, code: str = "value_error") -> ServiceError:
    """Return the 400 for a single field."""
    return invalid([FieldError(name, message, code)])


def not_found(name: str, message: str, code: str = "not_found") -> ServiceError:
    """Return the 404 for an unknown id, or for a code that does not verify."""
    return ServiceError(404, message, [FieldError(name, message, code)])
