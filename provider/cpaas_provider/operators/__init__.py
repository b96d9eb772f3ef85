"""Operators: one for each operation of the service, and the campaigns. Each is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpaas_provider._common import lazy_names

if TYPE_CHECKING:
    from cpaas_provider.operators.airtime import BuyAirtimeOperator as BuyAirtimeOperator
    from cpaas_provider.operators.base_campaign import partitions as partitions
    from cpaas_provider.operators.contact_sync import SyncContactsOperator as SyncContactsOperator
    from cpaas_provider.operators.contacts import CreateContactRowOperator as CreateContactRowOperator
    from cpaas_provider.operators.contacts import DeleteContactRowOperator as DeleteContactRowOperator
    from cpaas_provider.operators.contacts import GetContactRowOperator as GetContactRowOperator
    from cpaas_provider.operators.contacts import GetContactTableOperator as GetContactTableOperator
    from cpaas_provider.operators.contacts import UpdateContactRowOperator as UpdateContactRowOperator
    from cpaas_provider.operators.contacts import UpsertContactRowOperator as UpsertContactRowOperator
    from cpaas_provider.operators.email import EmailCampaignOperator as EmailCampaignOperator
    from cpaas_provider.operators.email import SendEmailOperator as SendEmailOperator
    from cpaas_provider.operators.lookup import BulkPhoneLookupOperator as BulkPhoneLookupOperator
    from cpaas_provider.operators.lookup import PhoneLookupOperator as PhoneLookupOperator
    from cpaas_provider.operators.otp import FindOtpsOperator as FindOtpsOperator
    from cpaas_provider.operators.otp import GetOtpOperator as GetOtpOperator
    from cpaas_provider.operators.otp import RequestOtpOperator as RequestOtpOperator
    from cpaas_provider.operators.otp import RevokeOtpOperator as RevokeOtpOperator
    from cpaas_provider.operators.otp import VerifyOtpOperator as VerifyOtpOperator
    from cpaas_provider.operators.sms import SendSmsOperator as SendSmsOperator
    from cpaas_provider.operators.sms import SmsCampaignOperator as SmsCampaignOperator

_HOMES = {
    "airtime": ("BuyAirtimeOperator",),
    "base_campaign": ("partitions",),
    "contact_sync": ("SyncContactsOperator",),
    "contacts": (
        "CreateContactRowOperator",
        "DeleteContactRowOperator",
        "GetContactRowOperator",
        "GetContactTableOperator",
        "UpdateContactRowOperator",
        "UpsertContactRowOperator",
    ),
    "email": ("EmailCampaignOperator", "SendEmailOperator"),
    "lookup": ("BulkPhoneLookupOperator", "PhoneLookupOperator"),
    "otp": (
        "FindOtpsOperator",
        "GetOtpOperator",
        "RequestOtpOperator",
        "RevokeOtpOperator",
        "VerifyOtpOperator",
    ),
    "sms": ("SendSmsOperator", "SmsCampaignOperator"),
}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
