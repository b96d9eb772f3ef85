from __future__ import annotations

import pytest

from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.api.recipients.reader import AllowedRecipients, RecipientReader

READ = RecipientReader("any", NumberReader("NG")).read


@pytest.mark.parametrize(
    ("recipient", "permitted"),
    [
        ("2348031234567", True),
        ("+2348031234567", True),
        ("2348031234568", False),
        ("ada@example.com", True),
        ("+ada@example.com", False),
        ("+tag@example.com", True),
        ("tag@example.com", False),
        ("bob@example.com", False),
        ("anyone@staging.example.com", True),
        ("anyone@sub.staging.example.com", False),
        ("anyone@evilstaging.example.com", False),
    ],
)
def test_only_listed_recipients_are_allowed(recipient: str, permitted: bool) -> None:
    listed = "0803 123 4567, ada@EXAMPLE.com, +tag@example.com, @Staging.example.com,"
    assert AllowedRecipients(listed, READ).allows(recipient) is permitted


def test_empty_list_allows_no_recipient() -> None:
    assert AllowedRecipients([], READ).allows("2348031234567") is False
    assert AllowedRecipients("", READ).allows("2348031234567") is False


def test_invalid_entry_is_named_by_its_position() -> None:
    with pytest.raises(CpaasConfigurationError, match=r"entry 2 is not") as caught:
        AllowedRecipients(["ada@example.com", "08031234567"], RecipientReader("any").read)
    assert "0803" not in str(caught.value)
