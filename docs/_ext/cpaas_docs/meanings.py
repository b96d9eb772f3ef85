"""What the columns and values of results files mean. The names themselves come from the code.

A name without a meaning here fails the build.
"""

from __future__ import annotations

COLUMNS = {
    "row": "Number of the row in the source, from 1. In a CSV or JSON Lines file it is the line: the header of a CSV "
    "is line 1. 0 is a test recipient. Empty for one gone from the source.",
    "recipient": "The phone number with its plus, or the email address. Empty for a row that is invalid or gone.",
    "outcome": "One of the values below.",
    "reference": "Reference of the request. Logs, errors and the journal use the same.",
    "message_id": "The service's id of the message.",
    "pages": "Billable pages (SMS segments) of the message. Empty for email.",
    "reason": "Why the recipient or row was rejected or left out, or the reason in a delivery report.",
    "campaign": "Reference of the campaign, or of the request where it belongs to no campaign.",
    "status": "The service's word in the delivery report.",
    "conflict": "Whether there are reports of both: delivered and not delivered.",
    "reported": "The time in the report.",
    "key": "The key of the row, its parts joined by ` / `. Empty where only its hash is known.",
    "row_id": "The service's id of the row in the contact list.",
    "phone": "The phone number in international form, with a plus. Empty for a row that cannot be used.",
    "operator": "The network operator, as the service names it.",
    "country": "The country of the number, as the service names it.",
    "ported": "Whether the number was ported to another operator.",
    "dnd": "Whether the number is marked as do-not-disturb.",
    "columns": "The list columns that the request set, or would set in a dry run, joined by commas.",
}

CAMPAIGN_OUTCOMES = {
    0: "No request for this recipient was accepted yet. A retry sends to it.",
    1: "The service accepted the message.",
    2: "The service rejected the message. It was not sent.",
    3: "The provider cannot determine whether the service accepted the message.",
    4: "The row cannot be used, for example because it holds no valid number.",
    5: "Another row has the same recipient.",
    6: "`allowed_recipients` of the connection does not list the recipient.",
    7: "`suppression_list` or the stored suppression list names the recipient.",
    8: "The phone lookup shows the number as do-not-disturb (`skip_dnd`).",
    9: "The phone lookup failed, and `on_lookup_error` is `skip`.",
    10: "The recipient got as many messages as `frequency_cap` allows.",
}
"""By the value of the member, which is stored and so never changes."""

CONTACT_OUTCOMES = {
    "created": "The service created a row.",
    "updated": "The service updated the row.",
    "deleted": "The service deleted the row.",
    "rejected": "The service rejected the row, in this run or unchanged in an earlier one.",
    "invalid_row": "The row cannot be used. A cell does not fit, or the key is blank or of another row.",
    "invalid_cell": 'The cells of `columns` cannot be used. The list has the others (`on_invalid_cell="skip_cell"`). '
    "A row whose other cells were sent has the outcome of that request. Its `reason` names the cells.",
    "unknown": "The provider cannot determine whether the service created a row.",
    "not_sent": "No request for this row was accepted yet. A retry sends it.",
    "to_create": "A dry run: the sync would create a row.",
    "to_update": "A dry run: the sync would update the row. `columns` are those that would change.",
    "to_delete": "A dry run: the sync would delete the row. `row_id` identifies it, and `reason` has its key hash.",
}
"""By the value of the member."""

DELIVERY_OUTCOMES = {
    0: "Nothing final is reported yet.",
    10: "The message was not delivered.",
    20: "The message was delivered: *reached*.",
    30: "The email bounced after it was delivered. It counts as undelivered.",
    40: "The email was opened: *reached*, so it counts as delivered.",
    50: "A link was clicked: *reached*, so it counts as delivered.",
}
"""By the value of the member: where reports differ, the highest counts."""
