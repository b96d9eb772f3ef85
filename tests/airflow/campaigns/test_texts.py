"""What goes into the texts of a campaign: lines of a header, invisible marks, the encoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.airflow.harness.campaigns import all_requests, counts, email, lines, rows, sms, texts
from tests.airflow.harness.stage import Stage

ADA, BOB = "ada@example.org", "bob@example.org"
LINE_BREAKS = ["\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x00"]


def by_email(name: str) -> list[dict[str, Any]]:
    """Return two rows, the first with this name."""
    return [{"email": ADA, "name": name}, {"email": BOB, "name": "Bob"}]


class TestHeaderLines:
    @pytest.mark.parametrize("mark", LINE_BREAKS)
    def test_row_with_line_break_for_the_subject_is_invalid_and_others_are_sent_to(
        self, stage: Stage, tmp_path: Path, mark: str
    ) -> None:
        path = tmp_path / "results.jsonl"
        done = email(
            stage,
            by_email(f"Ada{mark}Bcc: all@example.com"),
            subject="Hello {name}",
            content="Dear {name}",
            results_path=str(path),
            max_failure_ratio=0.5,
        ).once()
        assert (done.state, counts(done.result)) == ("success", {"sent": 1, "invalid_rows": 1})
        [invalid] = [line for line in lines(path) if line["outcome"] == "invalid_row"]
        assert invalid["reason"] == (
            "has a line break or another control character for the placeholder name of the subject"
        )
        assert list(texts(stage, "email")) == [BOB]

    def test_line_break_in_a_value_of_the_body_alone_is_sent(self, stage: Stage) -> None:
        done = email(stage, by_email("Ada\nLagos"), subject="Hello", content="Dear {name}").once()
        assert (done.state, texts(stage, "email")[ADA]) == ("success", "Dear Ada\nLagos")

    @pytest.mark.parametrize("field", ["subject", "from_name", "reply_to", "sender_id"])
    def test_line_break_in_a_field_of_all_ends_the_campaign_before_a_request(self, stage: Stage, field: str) -> None:
        value = "desk@exam\u2028ple.com" if field in ("reply_to", "sender_id") else "Hi\u2028Bcc: x@example.com"
        ended = email(stage, by_email("Ada"), dry_run=True, **{field: value}).once()
        assert (ended.state, all_requests(stage)) == ("failed", 0)
        assert f"{field} must not contain line breaks or other control characters. Nothing was sent." in ended.error

    def test_default_with_line_break_for_the_subject_ends_the_campaign_before_a_request(self, stage: Stage) -> None:
        given = {"subject": "Hello {name}", "substitution_defaults": {"name": "dear\nfriend"}}
        ended = email(stage, [{"email": ADA, "name": ""}], **given).once()
        assert (ended.state, all_requests(stage)) == ("failed", 0)
        assert "substitution_defaults has a line break or another control character for name" in ended.error

    @pytest.mark.parametrize("sender", ["Sh\u200bop", "Shop\U0001f600", "Sh\nop"])
    def test_sender_with_invisible_characters_or_emoji_ends_the_campaign_in_a_dry_run(
        self, stage: Stage, sender: str
    ) -> None:
        ended = sms(stage, rows(1), sender_id=sender, dry_run=True).once()
        assert (ended.state, all_requests(stage)) == ("failed", 0)
        assert "sender_id must not contain" in ended.error
