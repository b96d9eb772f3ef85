"""Refusals in the documented error shape (INTERFACE.md section 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldError:
    """One item of ``errors``: the offending field, what is wrong, and a validator's code for it."""

    field: str
    message: str
    type: str


@dataclass
class ServiceError(Exception):
    """The service refuses a request; nothing was accepted."""

    status: int
    message: str
    errors: Sequence[FieldError] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self, status: int | None = None) -> dict[str, Any]:
        """Return the documented error body; ``status`` overrides the number it carries."""
        errors = [asdict(error) for error in self.errors]
        return {"status": self.status if status is None else status, "message": self.message, "errors": errors}


def invalid(errors: Sequence[FieldError]) -> ServiceError:
    """Return the 400 that names every offending field at once."""
    return ServiceError(400, "The request is not valid", errors)


def invalid_field(name: str, message: str, code: str = "value_error") -> ServiceError:
    """Return the 400 for a single field."""
    return invalid([FieldError(name, message, code)])


def not_found(name: str, message: str) -> ServiceError:
    """Return the 404 for something the caller named and we do not have."""
    return ServiceError(404, message, [FieldError(name, message, "not_found")])
