"""Content of a campaign: header lines, invisible marks and the encoding."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.operators.sms import SmsCampaignOperator
from tests.airflow.harness.campaigns import (
    TEXT,
    all_requests,
    clear_faults,
    count_messages,
    counts,
    digits,
    email,
    last_texts,
    limit_batches,
    read_results,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import TaskRunner, fault

ADA, BOB = "ada@example.org", "bob@example.org"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
LINE_BREAKS = ["\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x00"]


def by_email(name: str) -> list[dict[str, Any]]:
    """Return two rows, the first with this name."""
    return [{"email": ADA, "name": name}, {"email": BOB, "name": "Bob"}]


class TestHeaderLines:
    @pytest.mark.parametrize("mark", LINE_BREAKS)
    def test_row_with_line_break_for_the_subject_is_invalid_and_others_are_sent_to(
        self, task_runner: TaskRunner, tmp_path: Path, mark: str
    ) -> None:
        path = tmp_path / "results.jsonl"
        done = email(
            task_runner,
            by_email(f"Ada{mark}Bcc: all@example.com"),
            subject="Hello {name}",
            content="Dear {name}",
            results_path=str(path),
            max_failure_ratio=0.5,
        ).run_try()
        assert (done.state, counts(done.result)) == ("success", {"sent": 1, "invalid_rows": 1})
        [invalid] = [line for line in read_results(path) if line["outcome"] == "invalid_row"]
        assert invalid["reason"] == (
            "has a line break or another control character for the placeholder name of the subject"
        )
        assert list(last_texts(task_runner, "email")) == [BOB]

    def test_line_break_in_a_value_of_the_body_alone_is_sent(self, task_runner: TaskRunner) -> None:
        done = email(task_runner, by_email("Ada\nLagos"), subject="Hello", content="Dear {name}").run_try()
        assert (done.state, last_texts(task_runner, "email")[ADA]) == ("success", "Dear Ada\nLagos")

    @pytest.mark.parametrize("field", ["subject", "from_name", "reply_to", "sender_id"])
    def test_line_break_in_a_field_of_all_ends_the_campaign_before_a_request(
        self, task_runner: TaskRunner, field: str
    ) -> None:
        value = "desk@exam\u2028ple.com" if field in ("reply_to", "sender_id") else "Hi\u2028Bcc: x@example.com"
        ended = email(task_runner, by_email("Ada"), dry_run=True, **{field: value}).run_try()
        assert (ended.state, all_requests(task_runner)) == ("failed", 0)
        assert f"{field} must not contain line breaks or other control characters. Nothing was sent." in ended.error

    def test_default_with_line_break_for_the_subject_ends_the_campaign_before_a_request(
        self, task_runner: TaskRunner
    ) -> None:
        given = {"subject": "Hello {name}", "substitution_defaults": {"name": "dear\nfriend"}}
        ended = email(task_runner, [{"email": ADA, "name": ""}], **given).run_try()
        assert (ended.state, all_requests(task_runner)) == ("failed", 0)
        assert "substitution_defaults has a line break or another control character for name" in ended.error

    @pytest.mark.parametrize("sender", ["Sh\u200bop", "Shop\U0001f600", "Sh\nop"])
    def test_sender_with_invisible_characters_or_emoji_ends_the_campaign_in_a_dry_run(
        self, task_runner: TaskRunner, sender: str
    ) -> None:
        ended = sms(task_runner, rows(1), sender_id=sender, dry_run=True).run_try()
        assert (ended.state, all_requests(task_runner)) == ("failed", 0)
        assert "sender_id must not contain" in ended.error


def named(*names: str) -> list[dict[str, Any]]:
    """Return a row for each name."""
    return [{"phone": f"+{number}", "name": name} for number, name in zip(digits(len(names)), names, strict=True)]


class TestInvisibleMarks:
    def test_marks_of_text_and_cells_are_not_sent_and_not_charged(self, task_runner: TaskRunner) -> None:
        rows_ = named("A\u200bda" + "x" * 140, "می\u200cروم", FAMILY)
        done = sms(task_runner, rows_, content="\ufeffDear\u200b {name}\ufeff").run_try()
        assert list(last_texts(task_runner).values()) == ["Dear Ada" + "x" * 140, "Dear می\u200cروم", f"Dear {FAMILY}"]
        assert (done.result["pages"], done.result["encodings"]) == ({"1": 3}, {"GSM-7": 1, "UCS-2": 2})

    def test_joiner_between_placeholders_is_sent(self, task_runner: TaskRunner) -> None:
        row = {"phone": f"+{digits(1)[0]}", "a": "می", "b": "روم"}
        assert sms(task_runner, [row], content="{a}\u200c{b}").run_try().state == "success"
        assert last_texts(task_runner)[digits(1)[0]] == "می\u200cروم"

    def test_email_loses_only_byte_order_marks(self, task_runner: TaskRunner) -> None:
        given = {"subject": "\ufeffHello", "content": "\ufeffDear\u00ad{name}"}
        assert email(task_runner, by_email("Ada"), **given).run_try().state == "success"
        assert last_texts(task_runner, "email")[ADA] == "Dear\u00adAda"

    def test_mark_added_between_tries_is_no_other_content(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=1))
        run = sms(task_runner, rows(2))
        run.run_try()
        clear_faults(task_runner)
        done = run.change(content=f"{TEXT}\ufeff").clear().run_try()
        assert (done.state, count_messages(task_runner)) == ("success", Counter(digits(2)))
        assert "The content changed after an earlier try" not in done.log


class TestEncoding:
    CONTENT = "It\u2019s {name}\u2026" + "x" * 140

    def test_dry_run_has_what_the_option_would_save(self, task_runner: TaskRunner) -> None:
        people = [*named("\u201cAda\u201d", "Ọlá", "Bob"), *named("Bob")]
        done = sms(task_runner, people, content=self.CONTENT, dry_run=True, price_per_page=2.0).run_try()
        assert (done.result["gsm7_saved_pages"], done.result["gsm7_saved_charge"]) == (4, 8.0)
        assert (done.result["pages"], done.result["estimated_charge"]) == ({"3": 3}, 18.0)
        assert "encoding='gsm7' would save 4 pages (charge 8" in done.log

    def test_dry_run_with_the_option_has_what_it_saves(self, task_runner: TaskRunner) -> None:
        people = named("\u201cAda\u201d", "Ọlá", "Bob")
        done = sms(task_runner, people, content=self.CONTENT, dry_run=True, encoding="gsm7").run_try()
        assert (done.result["gsm7_saved_pages"], done.result["gsm7_saved_charge"]) == (4, None)
        assert (done.result["pages"], done.result["encodings"]) == ({"1": 2, "3": 1}, {"GSM-7": 2, "UCS-2": 1})
        assert "encoding='gsm7' saves 4 pages." in done.log

    def test_dry_run_that_saves_nothing_has_zero(self, task_runner: TaskRunner) -> None:
        done = sms(task_runner, rows(2), dry_run=True).run_try()
        assert done.result["gsm7_saved_pages"] == 0
        assert "encoding='gsm7' would save 0 pages." in done.log

    def test_dry_run_of_email_or_template_or_whatsapp_has_none(self, task_runner: TaskRunner) -> None:
        by_template = {"content": None, "template_id": "tpl_newsletter", "substitutions": ["name"]}
        for run in (
            email(task_runner, by_email("Ada"), dry_run=True),
            sms(task_runner, rows(1), dry_run=True, **by_template),
            sms(task_runner, rows(1), dry_run=True, channel="whatsapp"),
        ):
            assert run.run_try().result["gsm7_saved_pages"] is None

    def test_each_recipient_gets_gsm7_where_text_and_values_allow(self, task_runner: TaskRunner) -> None:
        people = named("\u201cAda\u201d", "Ọlá\u2019s", "Bob")
        done = sms(task_runner, people, content="It\u2019s {name}\u2026", encoding="gsm7").run_try()
        assert list(last_texts(task_runner).values()) == ['It\'s "Ada"...', "It's Ọlá\u2019s...", "It's Bob..."]
        assert (done.result["encodings"], done.result["gsm7_saved_pages"]) == ({"GSM-7": 2, "UCS-2": 1}, None)

    def test_text_with_other_characters_stays_and_the_log_has_their_number(self, task_runner: TaskRunner) -> None:
        done = sms(task_runner, named("Ada\u2019s"), content="Ẹ kú {name}\u2026 ọ", encoding="gsm7").run_try()
        assert list(last_texts(task_runner).values()) == ["Ẹ kú Ada\u2019s\u2026 ọ"]
        assert "the text stays UCS-2: 3 characters of it have no form in GSM-7" in done.log
        assert "Ẹ" not in done.log

    def test_typography_is_sent_without_the_encoding_option(self, task_runner: TaskRunner) -> None:
        sms(task_runner, named("\u201cAda\u201d"), content="It\u2019s {name}").run_try()
        assert list(last_texts(task_runner).values()) == ["It\u2019s \u201cAda\u201d"]

    @pytest.mark.parametrize("given", [{"encoding": "ucs2"}, {"encoding": "gsm7", "channel": "whatsapp"}])
    def test_invalid_encoding_is_refused_in_the_dag_file(self, given: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="encoding"):
            SmsCampaignOperator(task_id="x", source=[], content="x", **given)
