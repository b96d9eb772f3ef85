"""The service as Python, usable from any program: ``from cpaas_provider.api import CpaasClient``.

Names are loaded when they are first used, because a DAG file that imports an operator needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpaas_provider._common import lazy_names

if TYPE_CHECKING:
    from cpaas_provider.api.client import AsyncCpaasClient as AsyncCpaasClient
    from cpaas_provider.api.client import CpaasClient as CpaasClient
    from cpaas_provider.api.errors import CpaasAuthenticationError as CpaasAuthenticationError
    from cpaas_provider.api.errors import CpaasBudgetReachedError as CpaasBudgetReachedError
    from cpaas_provider.api.errors import CpaasConfigurationError as CpaasConfigurationError
    from cpaas_provider.api.errors import CpaasConnectionStoppedError as CpaasConnectionStoppedError
    from cpaas_provider.api.errors import CpaasError as CpaasError
    from cpaas_provider.api.errors import CpaasInsufficientBalanceError as CpaasInsufficientBalanceError
    from cpaas_provider.api.errors import CpaasInvalidRequestError as CpaasInvalidRequestError
    from cpaas_provider.api.errors import CpaasNotFoundError as CpaasNotFoundError
    from cpaas_provider.api.errors import CpaasNotSentError as CpaasNotSentError
    from cpaas_provider.api.errors import CpaasNotVerifiedError as CpaasNotVerifiedError
    from cpaas_provider.api.errors import CpaasOperationRemovedError as CpaasOperationRemovedError
    from cpaas_provider.api.errors import CpaasRateLimitedError as CpaasRateLimitedError
    from cpaas_provider.api.errors import CpaasRejectedError as CpaasRejectedError
    from cpaas_provider.api.errors import CpaasUnavailableError as CpaasUnavailableError
    from cpaas_provider.api.errors import CpaasUnknownOutcomeError as CpaasUnknownOutcomeError
    from cpaas_provider.api.models.otp import OtpOutcome as OtpOutcome
    from cpaas_provider.api.recipients.email_address import InvalidEmailAddressError as InvalidEmailAddressError
    from cpaas_provider.api.recipients.email_address import mask_email as mask_email
    from cpaas_provider.api.recipients.email_address import normalise_email as normalise_email
    from cpaas_provider.api.recipients.invalid import InvalidMsisdnError as InvalidMsisdnError
    from cpaas_provider.api.recipients.msisdn import mask_msisdn as mask_msisdn
    from cpaas_provider.api.recipients.msisdn import normalise_msisdn as normalise_msisdn
    from cpaas_provider.api.text.sms import SmsLength as SmsLength
    from cpaas_provider.api.text.sms import measure_sms as measure_sms

_HOMES = {
    "recipients.email_address": ("InvalidEmailAddressError", "mask_email", "normalise_email"),
    "client": ("AsyncCpaasClient", "CpaasClient"),
    "errors": (
        "CpaasAuthenticationError",
        "CpaasBudgetReachedError",
        "CpaasConfigurationError",
        "CpaasConnectionStoppedError",
        "CpaasError",
        "CpaasInsufficientBalanceError",
        "CpaasInvalidRequestError",
        "CpaasNotFoundError",
        "CpaasNotSentError",
        "CpaasNotVerifiedError",
        "CpaasOperationRemovedError",
        "CpaasRateLimitedError",
        "CpaasRejectedError",
        "CpaasUnavailableError",
        "CpaasUnknownOutcomeError",
    ),
    "models.otp": ("OtpOutcome",),
    "recipients.invalid": ("InvalidMsisdnError",),
    "recipients.msisdn": ("mask_msisdn", "normalise_msisdn"),
    "text.sms": ("SmsLength", "measure_sms"),
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
