"""What a campaign says: words of a row, texts as one reads them, pages."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from cpaas_provider.api.recipients.email_address import normalise_email
from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.sending.campaign.campaign import refuse_unknown_placeholders
from cpaas_provider.sending.campaign.content import Content, MissingWords, placeholder_values_as_json
from cpaas_provider.sending.campaign.loader import CannotPlanError
from cpaas_provider.sending.requests.channels import EMAIL, SMS
from tests.unit.sending.campaign.parts import message


@pytest.mark.parametrize(
    "cell", [None, " ", float("nan"), Decimal("NaN"), b"Ada", ["Ada", "B"], {"first": "Ada"}, "nan"]
)
def test_default_fills_a_cell_that_recipients_cannot_read(cell: Any) -> None:
    content = message("{name}", {"name": "n"}, defaults={"name": "customer"})
    assert content.values([cell]) == ["customer"]
    with pytest.raises(ValueError, match="no value for the placeholder name"):
        message("{name}", {"name": "n"}).values([cell])


def test_missing_value_words_are_counted_by_placeholder() -> None:
    content, words = (
        message("{name} {city}", {"name": "n", "city": "c"}, defaults={"name": "you", "city": "x"}),
        MissingWords(),
    )
    for cells in (["nan", "Lagos"], [" nan ", "NULL"], ["Nan", None], [float("nan"), "<NA>"]):
        content.values(cells, words)
    assert words.counts == {"name": {"nan": 2}, "city": {"NULL": 1, "<NA>": 1}}
    assert words.describe()[0].startswith("2 rows have the word 'nan' in {name}. It is read as a missing value.")


def test_missing_value_words_are_values_if_the_source_lists_missing_values() -> None:
    words = MissingWords(are_values=True)
    assert message("{name}", {"name": "n"}, defaults={"name": "you"}).values([" null "], words) == ["null"]
    assert words.describe()[0].startswith("1 row has the word 'null' in {name}. It is read as a value, and sent.")


def test_values_follow_the_order_of_placeholders_and_defaults_fill_blanks() -> None:
    said = message("{name} {city}", {"name": "n", "city": "c"}, defaults={"city": "Lagos"})
    assert said.values(["Ada", None]) == ["Ada", "Lagos"]
    with pytest.raises(ValueError, match="no value for the placeholder name"):
        said.values([" ", "Abuja"])


def test_value_that_looks_like_a_placeholder_stays_as_it_is() -> None:
    said = message("{name}, {city} & 100 %", {"name": "n", "city": "c"})
    assert said.rendered(placeholder_values_as_json(["{city}", "Lagos"])) == ["{city}, Lagos & 100 %"]


def test_text_without_placeholders_is_the_same_for_all_recipients() -> None:
    assert message("Hello {you}").rendered(None) == ["Hello {you}"]


def test_custom_placeholder_format_is_filled() -> None:
    said = message("Hello %name%", {"name": "n"}, placeholder_format="%name%")
    assert said.rendered(placeholder_values_as_json(["Ada"])) == ["Hello Ada"]


def test_subject_and_body_are_both_filled() -> None:
    said = Content(EMAIL, {}, ["For {name}", "Dear {name}"], {"name": "n"})
    assert said.rendered(placeholder_values_as_json(["Ada"])) == ["For Ada", "Dear Ada"]
    assert said.length_estimator() is None


def test_pages_are_counted_of_the_rendered_text() -> None:
    measure = message("Hello {name}", {"name": "n"}).length_estimator()
    assert measure is not None
    assert [measure(["x" * length]).pages for length in (10, 154, 155)] == [1, 1, 2]
    assert measure(["ọ"]).encoding == "UCS-2"


def test_placeholder_without_a_column_is_refused_by_name() -> None:
    with pytest.raises(CannotPlanError, match=r"placeholders city of the text.*Nothing was sent"):
        refuse_unknown_placeholders(message("{name} {city}", {"name": "n"}))
    refuse_unknown_placeholders(message("{name}", {"name": "n", "unused": "u"}))


def test_repr_shows_no_text_and_no_default() -> None:
    shown = repr(message("the secret text", {"name": "n"}, defaults={"name": "Adaobi"}))
    assert "secret" not in shown
    assert "Adaobi" not in shown


def test_stored_recipient_is_returned_unchanged_in_any_region() -> None:
    assert NumberReader("US").read(SMS.as_read("6592345678")) == "6592345678"
    assert normalise_email(EMAIL.as_read("Ada@Example.org")) == "Ada@Example.org"
    assert "0000" not in SMS.mask("2348031200000")
