"""The messages of a series are the same requests as if each was checked by itself, and only the first one is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec.structs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api import operations as ask
from cpaas_provider.api.core import Call
from cpaas_provider.api.endpoints import SEND_EMAIL, SEND_SMS
from cpaas_provider.api.errors import CpaasInvalidRequestError
from cpaas_provider.api.models.sms import SendSmsRequest
from cpaas_provider.api.settings import ClientSettings
from cpaas_provider.sending.campaign.message_series import MessageSeries, SeriesMessage

ADA, OBI, EVE = "2348031234567", "2348031234568", "12025550123"
SMS_FIELDS: Mapping[str, Any] = {"sender_id": "Shop", "content": "Hello {name}", "is_trackable": True}
EMAIL_FIELDS: Mapping[str, Any] = {"sender_id": "shop@example.com", "content": "Hello {name}", "subject": "For you"}
SETTINGS = ClientSettings("https://cpaas.example.com", "key", default_region="NG")

plus = "+{}".format


def series(common: Mapping[str, Any] = SMS_FIELDS) -> MessageSeries:
    return MessageSeries(SEND_SMS, common, plus)


def message(
    of: MessageSeries,
    *recipients: str,
    name: str | None = None,
    external_ref: str = "cpaas-abc",
    callback: str | None = None,
) -> SeriesMessage:
    substitutions = None if name is None else [{"name": name} for _ in recipients]
    return SeriesMessage(of, recipients, substitutions, external_ref, callback)


def body_of(sent: SeriesMessage | Call[Any], settings: ClientSettings = SETTINGS) -> Any:
    request, fields = sent.build(settings)
    body = json.loads(request.body or b"")
    assert body == fields
    return body


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Count the requests that are checked in full."""
    counted: list[object] = []
    usual = SendSmsRequest.model_validate

    def validate(value: object, **options: Any) -> SendSmsRequest:
        counted.append(value)
        return usual(value, **options)

    monkeypatch.setattr(SendSmsRequest, "model_validate", validate)
    return counted


numbers = st.integers(2_348_030_000_000, 2_348_039_999_999).map(str)
addresses = st.integers(0, 10**6).map("p{}@example.com".format)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def batches(draw: st.DrawFn, recipients: st.SearchStrategy[str]) -> list[tuple[list[str], list[dict[str, str]] | None]]:
    personal = draw(st.booleans())
    found = []
    for _ in range(draw(st.integers(1, 4))):
        to = draw(st.lists(recipients, min_size=1, max_size=3, unique=True))
        found.append((to, [{"name": draw(texts)} for _ in to] if personal else None))
    return found


def assert_same_as_checked(
    of: MessageSeries,
    operation: Callable[..., Call[Any]],
    common: Mapping[str, Any],
    written: Callable[[str], str],
    drawn: Sequence[tuple[list[str], list[dict[str, str]] | None]],
    callback: str | None,
) -> None:
    for number, (recipients, substitutions) in enumerate(drawn):
        to = [written(one) for one in recipients]
        personalisation = substitutions and [
            {"to": one, "substitutions": own} for one, own in zip(to, substitutions, strict=True)
        ]
        url = callback and f"{callback}/{number}"
        checked = operation(
            to, **common, personalisation=personalisation, external_ref=f"cpaas-{number}", callback=url
        ).build(SETTINGS)
        built = SeriesMessage(of, recipients, substitutions, f"cpaas-{number}", url).build(SETTINGS)
        assert built == checked


@given(drawn=batches(numbers), callback=st.sampled_from([None, "https://receiver.example.com/callback"]))
def test_each_sms_is_byte_for_byte_what_a_full_check_returns(drawn: Any, callback: str | None) -> None:
    assert_same_as_checked(series(), ask.send_sms, SMS_FIELDS, plus, drawn, callback)


@given(drawn=batches(addresses), callback=st.sampled_from([None, "https://receiver.example.com/callback"]))
def test_each_email_is_byte_for_byte_what_a_full_check_returns(drawn: Any, callback: str | None) -> None:
    of = MessageSeries(SEND_EMAIL, EMAIL_FIELDS, str)
    assert_same_as_checked(of, ask.send_email, EMAIL_FIELDS, str, drawn, callback)


def test_identical_fields_are_checked_in_the_first_message_only(checks: list[object]) -> None:
    of = series()
    for number in range(5):
        body_of(message(of, ADA, OBI, name=f"Ada {number}", external_ref=f"cpaas-{number}"))
    assert len(checks) == 1


def test_normalised_number_is_not_read_as_a_national_one() -> None:
    of, american = series(), msgspec.structs.replace(SETTINGS, default_region="US")
    for _ in range(2):
        body = body_of(message(of, "6592345678", name="Tan"), american)
        assert (body["recipients"], body["personalisation"][0]["to"]) == ("6592345678", "6592345678")


def test_headers_and_url_are_those_of_the_first_message() -> None:
    of = series()
    first, second = (message(of, ADA, external_ref=f"cpaas-{number}").build(SETTINGS)[0] for number in range(2))
    assert (second.method, second.url) == ("POST", "https://cpaas.example.com/sms/send")
    assert second.headers is first.headers


def test_message_that_breaks_the_contract_is_refused_each_time() -> None:
    of = series({"sender_id": "A sender that is far too long", "content": "Hello"})
    for _ in range(2):
        with pytest.raises(CpaasInvalidRequestError, match=r"sender_id: must have at most 11 characters.*Nothing was"):
            message(of, ADA).build(SETTINGS)


@pytest.mark.parametrize("change", [{"base_url": "https://other.example.com"}, {"api_key": "another"}])
def test_changed_settings_are_checked_again_and_used(change: dict[str, str], checks: list[object]) -> None:
    of, other = series(), msgspec.structs.replace(SETTINGS, **change)
    message(of, ADA).build(SETTINGS)
    request, _ = message(of, OBI).build(other)
    assert (request.url, request.headers["Authorization"]) == (f"{other.base_url}/sms/send", f"Bearer {other.api_key}")
    assert len(checks) == 2


def test_recipients_that_are_not_allowed_are_refused_in_every_message() -> None:
    of, settings = series(), msgspec.structs.replace(SETTINGS, allowed_recipients=[plus(ADA), plus(OBI)])
    assert body_of(message(of, ADA, OBI), settings)["recipients"] == f"{ADA},{OBI}"
    with pytest.raises(
        CpaasInvalidRequestError, match="send_sms: 1 of 2 recipients are not in allowed_recipients"
    ) as no:
        message(of, ADA, EVE).build(settings)
    assert EVE not in str(no.value)
    assert body_of(message(of, ADA), settings)["recipients"] == ADA


def test_value_that_json_cannot_carry_is_refused_without_being_shown() -> None:
    of = series()
    body_of(message(of, ADA, name="Ada"))
    with pytest.raises(CpaasInvalidRequestError) as no:
        message(of, OBI, name="half \ud83d").build(SETTINGS)
    assert "half" not in str(no.value)
    assert no.value.__context__ is None
    assert body_of(message(of, OBI, name="Obi"))["personalisation"][0]["substitutions"] == {"name": "Obi"}


def test_message_with_other_fields_than_the_first_is_checked(checks: list[object]) -> None:
    of = series()
    assert "callback" not in body_of(message(of, ADA))
    url = "https://receiver.example.com/callback"
    assert body_of(message(of, OBI, callback=url))["callback"] == url
    assert "callback" not in body_of(message(of, EVE))
    assert len(checks) == 3
    with pytest.raises(CpaasInvalidRequestError, match="callback"):
        message(of, OBI, callback="ftp://receiver").build(SETTINGS)


def test_recipients_that_the_check_changes_are_checked_in_each_message(checks: list[object]) -> None:
    of = MessageSeries(SEND_SMS, SMS_FIELDS, str)
    for _ in range(2):
        body = body_of(SeriesMessage(of, ["0803 123 4567", plus(ADA), OBI], None, "cpaas-abc", None))
        assert body["recipients"] == f"{ADA},{OBI}"
    assert len(checks) == 2


def test_repr_shows_no_recipient_and_no_value() -> None:
    shown = repr(message(series(), ADA, name="Ada", callback="https://receiver.example.com/secret"))
    assert shown == "SeriesMessage()"
