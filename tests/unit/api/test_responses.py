"""What comes back: every outcome README promises, and every line of contract.md on answers."""

from __future__ import annotations

import datetime
import email.utils
import itertools
import json
from collections.abc import Iterable
from typing import Any

import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api import endpoints, errors
from cpaas_provider.api.endpoints import Endpoint, RetrySafety
from cpaas_provider.api.http.wire import HttpResponse, TransportFailure
from cpaas_provider.api.models.otp import OtpOutcome
from cpaas_provider.api.responses.failures import failure
from cpaas_provider.api.responses.parsing import parse_response

from .conftest import ENDPOINTS

KEY, ADA = "sk_live_4eC39HqLyjWDarjt", "2348031234567"
WHEN = "2024-03-01T10:20:30.123456+01:00"
OTP = {"id": "otp-1", "recipient": ADA, "status": 1, "status_desc": "SENT", "created_datetime": WHEN}
ROW = {"row": {"id": "row-1", "columns": {"c-1": "Ada"}}, "table": {"id": "t-1", "columns": []}}
SAMPLES: dict[str, Any] = {
    "send_sms": {"id": "sms-1"},
    "send_email": {"id": "email-1", "recipients": ["ada@example.com"], "sender_id": "clinic@example.com"},
    "request_otp": OTP,
    "verify_otp": OTP,
    "get_otp": OTP,
    "find_otps": [OTP],
    "revoke_otp": {},
    "buy_airtime": {"id": "buy-1", "status": "pending"},
    "get_contact_table": {"id": "t-1", "columns": [{"id": "c-1", "name": "First", "type": "TEXT"}]},
    "get_contact_row": ROW,
    "create_contact_row": ROW,
    "update_contact_row": ROW,
    "delete_contact_row": {},
    "lookup_phone": {"msisdn": ADA},
}
ERROR = {
    "status": 200,
    "message": "Failed to delete row",
    "errors": [{"field": "row_id", "message": "is required", "type": "missing"}],
}
WITH_A_BODY = [one for one in ENDPOINTS if not one.allows_empty_response]
# What an answer means depends on the endpoint by these three alone, and on which model reads a success.
OF_EACH_KIND = list(
    {
        (one.retry_safety, one.allows_empty_response, tuple(one.rejections.items())): one for one in reversed(ENDPOINTS)
    }.values()
)
every_kind = pytest.mark.parametrize("endpoint", OF_EACH_KIND, ids=lambda endpoint: endpoint.operation)
with_a_body = pytest.mark.parametrize("endpoint", WITH_A_BODY, ids=lambda endpoint: endpoint.operation)


def every_case(
    names: tuple[str, ...],
    cases: Iterable[tuple[Any, ...]],
    *,
    whole: tuple[Endpoint[Any], ...] = (endpoints.SEND_SMS,),
    once: Iterable[Endpoint[Any]] = OF_EACH_KIND,
) -> pytest.MarkDecorator:
    """Run a test with all cases on the endpoints of ``whole``, and with one case, each another, on the others."""
    cases = list(cases)
    others = [one for one in once if one not in whole]
    rows = [(one, *case) for one in whole for case in cases]
    rows += [(one, *case) for one, case in zip(others, itertools.cycle(cases))]
    return pytest.mark.parametrize(
        ("endpoint", *names), rows, ids=lambda value: value.operation if isinstance(value, Endpoint) else None
    )


def answer(status: int, body: Any = b"", retry_after: str | None = None, body_error: str | None = None) -> HttpResponse:
    return HttpResponse(status, retry_after, body if isinstance(body, bytes) else json.dumps(body).encode(), body_error)


def error_of(endpoint: Endpoint[Any], given: HttpResponse, private: tuple[str, ...] = ()) -> errors.CpaasError:
    with pytest.raises(errors.CpaasError) as caught:
        parse_response(endpoint, given, private)
    assert str(caught.value).startswith(f"{endpoint.operation}: ")
    assert caught.value.operation == endpoint.operation
    return caught.value


# Settled ------------------------------------------------------------------------------------------------------------


@every_case(("status",), [(200,), (201,), (202,)], once=WITH_A_BODY)
def test_resource_is_read_bare_or_in_an_envelope(endpoint: Endpoint[Any], status: int) -> None:
    sample = SAMPLES[endpoint.operation]
    envelope = {"status": status, "type": "success", "message": "It worked", "data": sample}
    bare = parse_response(endpoint, answer(status, sample))
    assert bare == parse_response(endpoint, answer(status, envelope))
    assert bare == parse_response(endpoint, answer(status, {"status": "success", "message": "ok", "data": sample}))
    assert bare == parse_response(endpoint, answer(status, {"data": sample}))


@with_a_body
def test_unknown_fields_are_preserved(endpoint: Endpoint[Any]) -> None:
    sample = SAMPLES[endpoint.operation]
    if endpoint is endpoints.FIND_OTPS:
        (resource,) = parse_response(endpoint, answer(200, [{**OTP, "brand_new": {"deep": [1]}}]))
    else:
        resource = parse_response(endpoint, answer(200, {**sample, "brand_new": {"deep": [1]}}))
    assert resource.brand_new == {"deep": [1]}


@pytest.mark.parametrize("given", [{"type": "BLOOD GROUP"}, {"type": "TEXT"}])
def test_unknown_column_type_is_read_as_text(given: dict[str, str]) -> None:
    table = {"id": "t-1", "columns": [{"id": "c-1", "name": "Group", **given}]}
    assert parse_response(endpoints.GET_CONTACT_TABLE, answer(200, table)).columns[0].type == given["type"]


@pytest.mark.parametrize("status", ["pending", "sent", "failed", "error", "success", "duplicate", "brand new"])
def test_airtime_status_is_read_as_text(status: str) -> None:
    body = {"id": "buy-1", "status": status, "message": "as asked", "network": "Orange"}
    assert parse_response(endpoints.BUY_AIRTIME, answer(200, body)).status == status


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *((field, wrong) for field in ("created_datetime", "updated_datetime") for wrong in ("never", [], {}, 5, True)),
        *(("meta", wrong) for wrong in ("free", [], 5, True)),
        *(("personalisation", wrong) for wrong in ("Ada", 5, True, ["Ada"])),
        *(("recipients", wrong) for wrong in (True, [[]])),
    ],
)
def test_invalid_optional_field_counts_as_absent(field: str, wrong: Any) -> None:
    message = parse_response(endpoints.SEND_SMS, answer(200, {"id": "sms-1", field: wrong}))
    assert message.id == "sms-1"
    assert getattr(message, field) is None


def test_invalid_figure_does_not_affect_the_other_fields() -> None:
    meta = {"method": "POST", "estimate": {"charge": "a lot", "available_balance": "99.5", "pages": 2}}
    message = parse_response(endpoints.SEND_SMS, answer(200, {"id": 17, "meta": meta}))
    assert message.id == "17"
    assert (message.meta.estimate.charge, message.meta.estimate.available_balance) == (None, 99.5)
    assert message.meta.estimate.pages == 2


@pytest.mark.parametrize(
    ("recipients", "read"),
    [([ADA], [ADA]), (f"{ADA}, 2348031234568", [ADA, "2348031234568"]), ([int(ADA)], [ADA]), (None, None)],
)
def test_recipients_of_a_response_are_read_in_every_form(recipients: Any, read: Any) -> None:
    message = parse_response(endpoints.SEND_SMS, answer(200, {"id": "sms-1", "recipients": recipients}))
    assert message.recipients == read


@pytest.mark.parametrize(
    ("written", "utc"),
    [
        ("2024-03-01T10:20:30.123456+01:00", "2024-03-01T09:20:30.123456+00:00"),
        ("2024-03-01T10:20:30Z", "2024-03-01T10:20:30+00:00"),
        ("2024-03-01 10:20:30.5+0100", "2024-03-01T09:20:30.500000+00:00"),
        ("2024-03-01T10:20:30.123456789-02:30", "2024-03-01T12:50:30.123456+00:00"),
        (" 2024-03-01T10:20:30 ", "2024-03-01T10:20:30+00:00"),
    ],
)
def test_timestamps_are_read_in_every_form(written: str, utc: str) -> None:
    token = parse_response(endpoints.GET_OTP, answer(200, {**OTP, "created_datetime": written}))
    assert token.created_datetime.in_timezone("UTC").isoformat() == utc


@pytest.mark.parametrize(
    "written",
    [
        "now",
        "",
        "10:20",
        "2024-03-01",
        "2024-02-30T10:20:30",
        "2024-03-01T10:20:30+24:00",
        "0000-00-00T00:00:00",
        5,
        None,
    ],
)
def test_invalid_timestamp_is_refused(written: Any) -> None:
    error = error_of(endpoints.GET_OTP, answer(200, {**OTP, "created_datetime": written}))
    assert "lacks or garbles created_datetime" in str(error)


ISO_8601 = r"\d{4}-\d\d-\d\d[T ]\d\d(:\d\d(:\d\d(\.\d{1,9})?)?)?(Z|[+-]\d\d:?\d\d)?"


@given(st.text() | st.from_regex(ISO_8601, fullmatch=True))
def test_timestamp_that_was_read_can_be_used(written: str) -> None:
    message = parse_response(endpoints.SEND_SMS, answer(200, {"id": "sms-1", "created_datetime": written}))
    moment = message.created_datetime
    assert moment is None or (isinstance(moment.isoformat(), str) and isinstance(moment.timestamp(), float))


@pytest.mark.parametrize(
    ("status_desc", "outcome"),
    [
        ("SENT", OtpOutcome.PENDING),
        ("brand new", OtpOutcome.PENDING),
        ("", OtpOutcome.PENDING),
        (" verified ", OtpOutcome.VERIFIED),
        ("Expired", OtpOutcome.EXPIRED),
        ("FAILED", OtpOutcome.FAILED),
        ("revoked", OtpOutcome.REVOKED),
        ("DELETED", OtpOutcome.REVOKED),
    ],
)
def test_outcome_of_a_passcode_follows_its_status_description(status_desc: str, outcome: OtpOutcome) -> None:
    token = parse_response(endpoints.GET_OTP, answer(200, {**OTP, "status": 3, "status_desc": status_desc}))
    assert token.outcome() is outcome


def test_status_words_of_a_passcode_are_configurable() -> None:
    token = parse_response(endpoints.GET_OTP, answer(200, {**OTP, "status_desc": "Used"}))
    assert token.outcome(success={"used"}) is OtpOutcome.VERIFIED
    assert token.outcome(failure={"USED"}) is OtpOutcome.FAILED


def test_passcode_expires_after_its_minutes() -> None:
    token = parse_response(endpoints.GET_OTP, answer(200, OTP))
    assert token.expires_at(15) == pendulum.parse(WHEN) + datetime.timedelta(minutes=15)


def test_verify_response_with_status_sent_is_a_success() -> None:
    assert parse_response(endpoints.VERIFY_OTP, answer(200, OTP)).id == "otp-1"


def test_lookup_with_only_the_number_is_read() -> None:
    found = parse_response(endpoints.LOOKUP_PHONE, answer(200, {"msisdn": int(ADA), "ported": "perhaps"}))
    assert (found.msisdn, found.operator, found.ported, found.dnd) == (ADA, None, None, None)


@every_case(
    ("status", "body"),
    [
        (200, b""),
        (204, b""),
        (200, b" \n"),
        (200, OTP),
        (200, ROW),
        (200, {}),
        (200, None),
        (200, "deleted"),
        (200, {"message": "Row deleted"}),
        (200, {"status": 200, "message": "Row deleted"}),
        (200, {"status": 200, "type": "success", "message": "Row deleted", "errors": []}),
        (200, {"status": 200, "type": "Success", "message": "Row deleted", "errors": None, "data": None}),
    ],
    whole=(endpoints.REVOKE_OTP,),
    once=(endpoints.DELETE_CONTACT_ROW,),
)
def test_deletion_succeeds_with_any_success_body(endpoint: Endpoint[Any], status: int, body: Any) -> None:
    assert parse_response(endpoint, answer(status, body)) is None


@pytest.mark.parametrize("body", [b"<html>Welcome</html>", b'{"sta', b"\xff\xfe\x00"])
def test_unreadable_body_leaves_a_deletion_unknown(body: bytes) -> None:
    error = error_of(endpoints.DELETE_CONTACT_ROW, answer(200, body))
    assert isinstance(error, errors.CpaasUnknownOutcomeError)
    assert error.retryable, "to delete twice is to delete once"
    assert error_of(endpoints.REVOKE_OTP, answer(200, b"", body_error="the connection broke")).retryable


def test_repr_of_a_resource_shows_no_personal_data() -> None:
    body = {
        **OTP,
        "recipients": [ADA],
        "content": "Hello Ada",
        "name": "Ada Lovelace",
        "callback": "https://example.com/secret",
        "personalisation": [{"to": ADA, "substitutions": {"first": "Ada"}}],
    }
    message = parse_response(endpoints.SEND_SMS, answer(200, body))
    shown = f"{message!r} {parse_response(endpoints.GET_OTP, answer(200, OTP))}"
    assert "otp-1" in shown
    for private in (ADA, "Ada", "secret"):
        assert private not in shown


# Not sent -----------------------------------------------------------------------------------------------------------

NOT_REACHED = {
    name: failure
    for name, failure in vars(TransportFailure).items()
    if isinstance(failure, TransportFailure) and not failure.may_have_left
}


@every_case(("reason",), [(reason,) for reason in NOT_REACHED.values()])
def test_request_to_an_unreachable_service_is_not_sent(endpoint: Endpoint[Any], reason: TransportFailure) -> None:
    error = failure(endpoint, reason, "https://api.example.com")
    assert type(error) is errors.CpaasNotSentError
    assert (error.retryable, error.maybe_sent, error.status) == (True, False, None)
    assert reason.reason in str(error)
    assert "Nothing was sent" in str(error)


def test_failures_before_the_first_byte_are_the_known_six() -> None:
    assert set(NOT_REACHED) == {"DNS", "REFUSED", "TLS", "CONNECT_TIMEOUT", "CONNECT", "PROXY"}


@every_case(("body",), [(b"",), (b"slow down",), (ERROR,), ({"status": 500, "message": "x"},), ({"id": "sms-1"},)])
def test_429_with_any_body_is_not_sent(endpoint: Endpoint[Any], body: Any) -> None:
    error = error_of(endpoint, answer(429, body, retry_after="7"))
    assert type(error) is errors.CpaasRateLimitedError
    assert (error.retryable, error.maybe_sent, error.retry_after, error.status) == (True, False, 7.0, 429)


@every_kind
def test_503_with_retry_after_is_not_sent_except_for_a_purchase(endpoint: Endpoint[Any]) -> None:
    error = error_of(endpoint, answer(503, retry_after="120"))
    if endpoint.retry_safety is RetrySafety.PURCHASE:
        assert isinstance(error, errors.CpaasUnknownOutcomeError)
        assert (error.retryable, error.maybe_sent) == (False, True)
    else:
        assert type(error) is errors.CpaasUnavailableError
        assert (error.retryable, error.maybe_sent, error.retry_after) == (True, False, 120)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        (" 7 ", 7),
        ("1.5", 1.5),
        ("9" * 400, 366 * 86400),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 366 * 86400),
        ("Mon, 01 Jan 2001 00:00:00 GMT", 0),
        ("Mon Jan  1 00:00:00 2001", 0),
        ("", None),
        ("-5", None),
        ("soon", None),
        ("1e3", None),
        ("nan", None),
        ("\u0661\u0660", None),
        ("Wed, 21 Oct 2095 07:28:00 +99999999999999999999", None),
    ],
)
def test_retry_after_is_read_in_every_form(written: str, seconds: float | None) -> None:
    assert error_of(endpoints.SEND_SMS, answer(429, retry_after=written)).retry_after == seconds


@pytest.mark.parametrize("form", ["%a, %d %b %Y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"])
def test_retry_after_date_is_read_in_utc(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=10)
    error = error_of(endpoints.SEND_SMS, answer(429, retry_after=until.strftime(form)))
    assert error.retry_after == pytest.approx(600, abs=5)


@given(st.text(max_size=60) | st.datetimes().map(email.utils.format_datetime) | st.integers().map(str))
def test_any_retry_after_gives_a_bounded_delay_or_none(written: str) -> None:
    after = error_of(endpoints.SEND_SMS, answer(429, retry_after=written)).retry_after
    assert after is None or 0 <= after <= 366 * 86400


def test_503_without_retry_after_is_unknown() -> None:
    for retry_after in (None, "soon"):
        error = error_of(endpoints.SEND_SMS, answer(503, retry_after=retry_after))
        assert isinstance(error, errors.CpaasUnknownOutcomeError)
        assert (error.retryable, error.maybe_sent) == (False, True)


# Rejected -----------------------------------------------------------------------------------------------------------


@every_case(
    ("body", "status"),
    itertools.product(
        [b"", b"<html>No</html>", ERROR, [], "no", {"detail": "no"}],
        [400, 405, 409, 410, 413, 415, 422, 451, 498],
    ),
)
def test_4xx_is_a_rejection_and_is_never_retried(endpoint: Endpoint[Any], body: Any, status: int) -> None:
    error = error_of(endpoint, answer(status, body))
    assert isinstance(error, errors.CpaasRejectedError)
    assert (error.retryable, error.maybe_sent, error.status) == (False, False, status)


@every_case(
    ("body", "status"),
    itertools.product(
        [b"", b"\x00\xff", {"anything": [f"Bearer {KEY}"]}, {"message": f"bad key {KEY}"}],
        [401, 403],
    ),
    # Every other rejection of a code means that it was wrong.
    whole=(endpoints.SEND_SMS, endpoints.VERIFY_OTP),
)
def test_refused_api_key_is_never_shown(endpoint: Endpoint[Any], body: Any, status: int) -> None:
    error = error_of(endpoint, answer(status, body), (KEY,))
    assert type(error) is errors.CpaasAuthenticationError
    assert "Check the API key" in str(error)
    assert KEY not in str(error) + repr(error)


@every_kind
def test_402_is_insufficient_balance(endpoint: Endpoint[Any]) -> None:
    error = error_of(endpoint, answer(402, {"message": "Insufficient balance"}))
    assert type(error) is errors.CpaasInsufficientBalanceError
    assert "Insufficient balance" in str(error)
    assert "Top up" in str(error)


@every_kind
def test_404_without_a_body_has_the_error_class_of_its_operation(endpoint: Endpoint[Any]) -> None:
    kinds = {
        "verify_otp": errors.CpaasNotVerifiedError,
        "buy_airtime": errors.CpaasOperationRemovedError,
    }
    assert type(error_of(endpoint, answer(404))) is kinds.get(endpoint.operation, errors.CpaasRejectedError)


OF_ONE_RECORD = [
    (endpoints.GET_OTP, "id"),
    (endpoints.REVOKE_OTP, "id"),
    (endpoints.FIND_OTPS, "recipient"),
    (endpoints.GET_CONTACT_ROW, "row_id"),
    (endpoints.UPDATE_CONTACT_ROW, "row_id"),
    (endpoints.DELETE_CONTACT_ROW, "row_id"),
    (endpoints.LOOKUP_PHONE, "phone"),
]
of_one_record = pytest.mark.parametrize(
    ("endpoint", "field"), OF_ONE_RECORD, ids=[endpoint.operation for endpoint, _ in OF_ONE_RECORD]
)


@of_one_record
@pytest.mark.parametrize("status", [400, 404, 410, 422])
def test_documented_error_that_names_the_record_is_a_verdict(endpoint: Endpoint[Any], field: str, status: int) -> None:
    body = {"status": status, "message": "Not found", "errors": [{"field": field, "message": "is unknown"}]}
    error = error_of(endpoint, answer(status, body))
    is_missing = status == 404 or endpoint is endpoints.GET_OTP
    assert type(error) is (errors.CpaasNotFoundError if is_missing else errors.CpaasRejectedError)
    assert error.is_permanent


FOREIGN = [
    b"",
    b"<html><h1>404 Not Found</h1></html>",
    b'{"message": "no Route matched with those values"}',
    b'{"detail": "Not Found"}',
    b'{"statusCode": 404, "message": "Cannot GET /v2/otp/otp-1", "error": "Not Found"}',
    b'{"status": 404, "message": "Not Found", "errors": []}',
    b'{"status": 404, "message": "Not Found", "errors": [{"field": "path", "message": "no such route"}]}',
]


@of_one_record
@pytest.mark.parametrize("body", FOREIGN)
@pytest.mark.parametrize("status", [400, 404, 410, 422])
def test_response_that_may_be_that_of_a_gateway_is_no_verdict(
    endpoint: Endpoint[Any], field: str, status: int, body: bytes
) -> None:
    error = error_of(endpoint, answer(status, body))
    assert type(error) is errors.CpaasRejectedError
    assert not error.is_permanent
    assert "Check the base URL" in str(error)


@pytest.mark.parametrize("status", [404, 400, 405, 422])
def test_gateway_page_is_a_rejection_but_not_of_the_passcode(status: int) -> None:
    assert type(error_of(endpoints.VERIFY_OTP, answer(status, b"<html>"))) is errors.CpaasRejectedError


def test_gateway_page_is_a_rejection_but_no_removed_operation() -> None:
    assert type(error_of(endpoints.BUY_AIRTIME, answer(404, b"<html>"))) is errors.CpaasRejectedError


OF_THE_CODE = {"status": 200, "message": "no", "errors": [{"field": "token", "message": "is wrong"}]}


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, b""), (400, ERROR), (422, ERROR), (200, OF_THE_CODE), (200, {"status": 404, "message": "no"})],
)
def test_rejected_passcode_raises_not_verified(status: int, body: Any) -> None:
    error = error_of(endpoints.VERIFY_OTP, answer(status, body))
    assert type(error) is errors.CpaasNotVerifiedError
    assert "Nothing was done" not in str(error), "a refused code has used up an attempt"


@pytest.mark.parametrize("status", [404, 405, 410])
def test_airtime_may_no_longer_be_sold(status: int) -> None:
    assert type(error_of(endpoints.BUY_AIRTIME, answer(status))) is errors.CpaasOperationRemovedError


DOCUMENTED = [{"field": "recipients", "message": "is bad", "type": "value_error"}]


@every_case(
    ("body", "status"),
    itertools.product(
        [
            ERROR,
            {**ERROR, "type": "error"},
            {"status": 400, "message": "no"},
            {"status": 400, "type": "success", "message": "no"},
            {"status": 422.0, "message": "no"},
            {"status": 400, "message": "no", "errors": []},
            {"status": 200, "message": "no", "data": None, "errors": DOCUMENTED},
        ],
        [200, 201],
    ),
)
def test_error_body_under_a_success_is_a_rejection(endpoint: Endpoint[Any], body: Any, status: int) -> None:
    if body.get("errors"):
        field = next(iter(endpoint.request.model_fields), "body")
        body = {**body, "errors": [{**item, "field": field} for item in body["errors"]]}
    error = error_of(endpoint, answer(status, body))
    if endpoint.retry_safety in (RetrySafety.UNSAFE, RetrySafety.PURCHASE) and (
        status != 200 or body.get("type") == "success"
    ):
        # It speaks of a success as well.
        assert facts(error) == (False, True)
        return
    assert isinstance(error, errors.CpaasRejectedError)
    assert (error.retryable, error.maybe_sent, error.status) == (False, False, status)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.CpaasAuthenticationError),
        (402, errors.CpaasInsufficientBalanceError),
        (404, errors.CpaasRejectedError),
        (400, errors.CpaasRejectedError),
    ],
)
def test_error_under_a_success_has_the_class_of_its_body_status(status: int, kind: type) -> None:
    assert type(error_of(endpoints.GET_OTP, answer(200, {"status": status, "message": "no"}))) is kind


@every_case(("status",), [(500,), (502,), (503,), (599,), (10**400,), (408,), ("503",)])
@pytest.mark.parametrize("errors_", [[], [{"field": "recipients", "message": "is bad"}]])
def test_success_whose_body_names_a_server_error_is_unknown(
    endpoint: Endpoint[Any], status: Any, errors_: list[Any]
) -> None:
    error = error_of(endpoint, answer(200, {"status": status, "message": "Internal error", "errors": errors_}))
    assert isinstance(error, errors.CpaasUnknownOutcomeError)
    answered = {RetrySafety.BILLED_READ: (False, False)}
    assert facts(error) == answered.get(endpoint.retry_safety, NO_ANSWER[endpoint.retry_safety])


@every_kind
def test_429_in_the_body_is_not_sent(endpoint: Endpoint[Any]) -> None:
    error = error_of(endpoint, answer(200, {"status": 429, "message": "slow down"}, retry_after="7"))
    assert type(error) is errors.CpaasRateLimitedError
    assert (error.retryable, error.maybe_sent, error.retry_after, error.status) == (True, False, 7.0, 200)
    assert "HTTP 200, 429 in the body" in str(error)


@pytest.mark.parametrize("line", [425, 200])
@every_kind
def test_425_is_not_sent_and_a_purchase_is_not_retried(endpoint: Endpoint[Any], line: int) -> None:
    error = error_of(endpoint, answer(line, {"status": 425, "message": "too early"}))
    assert not error.maybe_sent
    if endpoint.retry_safety is RetrySafety.PURCHASE:
        assert isinstance(error, errors.CpaasRejectedError)
        assert not error.retryable
    else:
        assert type(error) is errors.CpaasNotSentError
        assert error.retryable


@every_kind
def test_408_is_unknown(endpoint: Endpoint[Any]) -> None:
    error = error_of(endpoint, answer(408, {"message": "Request timeout"}))
    assert isinstance(error, errors.CpaasUnknownOutcomeError)
    assert facts(error) == NO_ANSWER[endpoint.retry_safety]


@pytest.mark.parametrize(
    "body",
    [
        {"status": 200, "message": "no", "errors": []},
        {"status": 200, "message": "no", "type": "failure"},
        {"status": 200, "message": "queued", "type": "queued"},
        {"status": 302, "message": "no", "errors": []},
        {"message": "no", "type": "error"},
        {"message": "no", "errors": "bad"},
        {"errors": [{"field": "recipients"}]},
        {"status": 400},
    ],
)
def test_incomplete_error_form_is_unknown_for_unsafe_operations(body: dict[str, Any]) -> None:
    for endpoint in (endpoints.SEND_SMS, endpoints.BUY_AIRTIME, endpoints.REQUEST_OTP, endpoints.CREATE_CONTACT_ROW):
        assert facts(error_of(endpoint, answer(200, body))) == (False, True)
    assert not error_of(endpoints.GET_OTP, answer(200, body)).maybe_sent


ACCEPTED = [
    {"errors": []},
    {"type": "queued"},
    {"type": "sms", "status": 200, "message": "ok"},
    *({"status": status, "message": "It was queued", "errors": []} for status in (400, 404, 429, 500, 503, 504)),
]


@pytest.mark.parametrize("around", ACCEPTED)
@pytest.mark.parametrize("operation", ["send_sms", "send_email", "buy_airtime", "request_otp"])
def test_resource_is_accepted_inside_any_envelope(operation: str, around: dict[str, Any]) -> None:
    (endpoint,) = (one for one in ENDPOINTS if one.operation == operation)
    sample = SAMPLES[operation]
    assert parse_response(endpoint, answer(200, {**around, "data": sample})).id == sample["id"]
    assert parse_response(endpoint, answer(200, {**around, **sample})).id == sample["id"]


@pytest.mark.parametrize(
    "body",
    [
        {"id": {"odd": 1}},
        {"data": [{"id": "sms-1"}, {"id": "sms-2"}]},
        {"data": {"row": {"id": "row-1"}}},
        {"row": {"id": "row-1"}},
    ],
)
def test_id_that_cannot_be_read_is_never_a_rejection(body: dict[str, Any]) -> None:
    refusal = {"status": 400, "message": "Bad", "errors": [{"field": "recipients", "message": "is bad"}]}
    assert facts(error_of(endpoints.SEND_SMS, answer(200, {**refusal, **body}))) == (False, True)


@pytest.mark.parametrize("named", [400, 402, 404, 429, 200])
@pytest.mark.parametrize("operation", ["send_sms", "send_email", "buy_airtime", "request_otp"])
def test_errors_beside_a_resource_without_its_id_are_never_a_rejection(operation: str, named: int) -> None:
    (endpoint,) = (one for one in ENDPOINTS if one.operation == operation)
    rest = {name: value for name, value in SAMPLES[operation].items() if name not in ("id", "status")}
    refusal = {"status": named, "message": "Bad", "errors": [{"field": "recipients", "message": "is bad"}]}
    for name, value in rest.items():
        assert facts(error_of(endpoint, answer(200, {**refusal, name: value}))) == (False, True), name
        assert facts(error_of(endpoint, answer(200, {**refusal, "data": {name: value}}))) == (False, True), name


@pytest.mark.parametrize("empty", [None, "", [], {}])
def test_empty_fields_of_a_resource_do_not_undo_a_rejection(empty: Any) -> None:
    refusal = {"status": 400, "message": "Bad", "errors": [{"field": "recipients", "message": "is bad"}]}
    body = {**refusal, "id": empty, "recipients": empty, "data": empty}
    assert isinstance(error_of(endpoints.SEND_SMS, answer(200, body)), errors.CpaasRejectedError)


@pytest.mark.parametrize(
    "body",
    [
        {"status": 200, "type": "success", "message": "queued"},
        {"message": "ok", "result": {"id": "sms-1", "recipients": "x"}},
        {"status": 200, "message": "ok", "data": {"sms": {"id": "1"}}},
        {"status": 400, "message": "ok", "data": [{"batch": {"sms": [{"id": "1"}]}}]},
    ],
)
def test_errors_beside_a_success_or_an_id_anywhere_are_never_a_rejection(body: dict[str, Any]) -> None:
    errors_ = [{"field": "recipients.1", "message": "is bad"}]
    for endpoint in (endpoints.SEND_SMS, endpoints.BUY_AIRTIME, endpoints.REQUEST_OTP, endpoints.CREATE_CONTACT_ROW):
        assert facts(error_of(endpoint, answer(200, {**body, "errors": errors_}))) == (False, True)


@pytest.mark.parametrize(
    "beside",
    [
        {"data": "msg_123"},
        {"data": ["m1", "m2"]},
        {"data": {"message_id": "m1"}},
        {"data": {"messages": [{"to": "x", "status": "queued"}]}},
        {"data": {"estimate": {"charge": 196}}},
        {"message_id": "m1"},
        {"estimate": {"charge": 196}},
        {"accepted": 49},
        {"success": True},
        {"columns": {"name": "Ada"}},
        {"message": {"id": "m1"}},
        {"status": {"id": "m1"}},
        *({"status": status} for status in ("success", "queued", 1, True, 201, 202, 207)),
        *({"type": kind} for kind in ("success", "partial_success", "queued")),
        *({"status": status, "type": "success"} for status in (400, 429)),
    ],
)
def test_errors_beside_anything_that_speaks_of_a_success_are_never_a_rejection(beside: dict[str, Any]) -> None:
    body = {"message": "Some are bad", "errors": [{"field": "recipients.1", "message": "is bad"}], **beside}
    for endpoint in (endpoints.SEND_SMS, endpoints.BUY_AIRTIME, endpoints.REQUEST_OTP, endpoints.CREATE_CONTACT_ROW):
        assert facts(error_of(endpoint, answer(200, body))) == (False, True)


@pytest.mark.parametrize("line", [201, 202, 203, 206, 207])
@pytest.mark.parametrize("named", [200, 400, 429])
def test_error_body_under_another_success_than_200_is_unknown(line: int, named: int) -> None:
    body = {"status": named, "message": "Bad", "errors": [{"field": "recipients.1", "message": "is bad"}]}
    assert facts(error_of(endpoints.SEND_SMS, answer(line, body))) == (False, True)


@pytest.mark.parametrize(
    "beside",
    [
        {"success": False, "accepted": 0, "data": {"messages": []}, "meta": None},
        {"status": 422, "code": "E42", "timestamp": "2026-03-01T10:20:30Z", "path": "/sms/send", "request_id": "r-1"},
        {"type": "validation_error"},
        {"status": "error"},
        {"status": 422},
    ],
)
def test_neutral_fields_beside_errors_leave_a_rejection(beside: dict[str, Any]) -> None:
    body = {"message": "Bad", "errors": [{"field": "recipients.1", "message": "is bad"}], **beside}
    assert isinstance(error_of(endpoints.SEND_SMS, answer(200, body)), errors.CpaasRejectedError)


def test_deep_answers_are_read_to_a_bound() -> None:
    deep = "[" * 300 + "]" * 300
    body = f'{{"message": "Bad", "errors": ["bad"], "data": {deep}}}'
    assert facts(error_of(endpoints.SEND_SMS, HttpResponse(200, None, body.encode()))) == (False, True)


def test_purchase_with_only_a_status_and_errors_is_unknown() -> None:
    body = {"status": "declined", "message": "no", "errors": [{"field": "recipient", "message": "is bad"}]}
    assert facts(error_of(endpoints.BUY_AIRTIME, answer(200, body))) == (False, True)
    assert isinstance(error_of(endpoints.SEND_SMS, answer(200, body)), errors.CpaasRejectedError)


@pytest.mark.parametrize("given", [5, None, ["2348031234567"], "no"])
@pytest.mark.parametrize("name", ["rejected_recipients", "rejection"])
def test_fields_of_the_response_do_not_set_the_attributes_of_the_client(name: str, given: Any) -> None:
    message = parse_response(endpoints.SEND_SMS, answer(200, {"id": "sms-1", name: given}))
    assert (message.rejected_recipients, message.rejection) == ((), None)


def test_errors_beside_an_id_do_not_undo_the_acceptance() -> None:
    body = {"id": "sms-1", "message": "One number was left out", "errors": [{"field": "recipients"}]}
    assert parse_response(endpoints.SEND_SMS, answer(200, body)).id == "sms-1"


@pytest.mark.parametrize(
    "body",
    [
        {"status": "400", "message": "a word is no code"},
        {"status": True, "message": "no number"},
        {"status": float("inf"), "message": "no whole number"},
        {"status": 400.5, "message": "no whole number"},
        {"status": 400},
        {"message": "nothing more"},
        {"status": 200, "type": "success", "message": "Sent", "errors": []},
        {"status": 200, "message": "Sent"},
    ],
)
def test_incomplete_error_body_is_no_rejection(body: dict[str, Any]) -> None:
    assert parse_response(endpoints.SEND_SMS, answer(200, {"id": "sms-1", **body})).id == "sms-1"
    assert isinstance(error_of(endpoints.SEND_SMS, answer(200, body)), errors.CpaasUnknownOutcomeError)


@every_case(("status",), [(500,), (503,)])
def test_server_error_whose_body_blames_the_request_is_unknown(endpoint: Endpoint[Any], status: int) -> None:
    error = error_of(endpoint, answer(status, {"status": 400, "message": "sender unknown", "errors": [{}]}))
    assert isinstance(error, errors.CpaasUnknownOutcomeError)
    assert facts(error) == NO_ANSWER[endpoint.retry_safety]


def test_error_text_has_field_message_and_type_of_each_item() -> None:
    body = {
        "status": 400,
        "message": "Validation failed.",
        "errors": [
            {"field": "sender_id", "message": "is not registered", "type": "unknown"},
            {"field": "content", "type": "missing"},
            {"message": "call us"},
            {"type": "odd"},
            {},
            "not an object",
            {"field": 5, "message": ["a"], "type": None},
        ],
    }
    error = error_of(endpoints.SEND_SMS, answer(400, body))
    assert str(error) == (
        "send_sms: the service rejected the request (HTTP 400): Validation failed; sender_id: is not registered "
        "(unknown); content (missing); call us; (odd); not an object; 5: ['a']. Nothing was done. Correct the "
        "request. An unchanged retry will fail again."
    )
    assert [item.field for item in error.items] == ["sender_id", "content", None, None, None, None, "5"]


def test_service_message_is_redacted_and_shortened() -> None:
    body = {
        "status": 400,
        "message": f"{ADA} and ada@example.com cannot get 'Dear Ada, your test' with 4711, key {KEY}",
        "errors": [{"field": f"recipients.{ADA}", "message": "x" * 10_000}] * 1000,
    }
    error = error_of(endpoints.SEND_SMS, answer(400, body), ("Dear Ada, your test was positive", "4711", KEY))
    for private in (ADA, "ada@example.com", "Dear Ada", "4711", KEY):
        assert private not in str(error) + repr(error)
    assert len(str(error)) < 600
    assert len(error.items) == 1000


@every_case(("status",), [(300,), (301,), (302,), (303,), (304,), (307,), (308,)])
def test_redirect_is_not_followed_and_leaves_unsafe_requests_unknown(endpoint: Endpoint[Any], status: int) -> None:
    error = error_of(endpoint, answer(status, {"status": status, "message": "Moved", "errors": []}))
    assert "Set the base URL to the final address" in str(error)
    assert "redirected" in str(error)
    assert not error.retryable
    if endpoint.retry_safety in (RetrySafety.UNSAFE, RetrySafety.PURCHASE):
        assert isinstance(error, errors.CpaasUnknownOutcomeError)
        assert error.maybe_sent
    else:
        assert type(error) is errors.CpaasRejectedError


# Unknown ------------------------------------------------------------------------------------------------------------


def facts(error: errors.CpaasError) -> tuple[bool, bool]:
    return error.retryable, error.maybe_sent


NO_ANSWER = {
    RetrySafety.SAFE: (True, False),
    RetrySafety.IDEMPOTENT: (True, True),
    RetrySafety.BILLED_READ: (True, False),
    RetrySafety.UNSAFE: (False, True),
    RetrySafety.PURCHASE: (False, True),
}


def test_each_operation_has_its_retry_safety() -> None:
    assert {one.operation: one.retry_safety for one in ENDPOINTS} == {
        "send_sms": RetrySafety.UNSAFE,
        "send_email": RetrySafety.UNSAFE,
        "request_otp": RetrySafety.UNSAFE,
        "verify_otp": RetrySafety.UNSAFE,
        "get_otp": RetrySafety.SAFE,
        "find_otps": RetrySafety.SAFE,
        "revoke_otp": RetrySafety.IDEMPOTENT,
        "buy_airtime": RetrySafety.PURCHASE,
        "get_contact_table": RetrySafety.SAFE,
        "get_contact_row": RetrySafety.SAFE,
        "create_contact_row": RetrySafety.UNSAFE,
        "update_contact_row": RetrySafety.IDEMPOTENT,
        "delete_contact_row": RetrySafety.IDEMPOTENT,
        "lookup_phone": RetrySafety.BILLED_READ,
    }


@every_kind
@pytest.mark.parametrize(
    "reason", [TransportFailure.RESPONSE_TIMEOUT, TransportFailure.CONNECTION_LOST], ids=lambda reason: reason.reason
)
def test_request_without_a_response_is_unknown(endpoint: Endpoint[Any], reason: TransportFailure) -> None:
    error = failure(endpoint, reason, "https://api.example.com")
    assert isinstance(error, errors.CpaasUnknownOutcomeError)
    assert facts(error) == NO_ANSWER[endpoint.retry_safety]
    assert reason.reason in str(error)


@every_case(
    ("body", "status"),
    itertools.product(
        [b"", b"<html>Oops</html>", {"status": 500, "message": "x"}, {"id": "sms-1"}],
        [500, 501, 502, 503, 504, 520, 599],
    ),
)
def test_5xx_is_unknown(endpoint: Endpoint[Any], body: Any, status: int) -> None:
    error = error_of(endpoint, answer(status, body))
    assert isinstance(error, errors.CpaasUnknownOutcomeError)
    assert facts(error) == NO_ANSWER[endpoint.retry_safety]
    assert error.status == status


@every_case(
    ("body", "body_error", "told"),
    [
        (b"", None, "not readable JSON"),
        (b'{"id": "sms', None, "not readable JSON"),
        (b"<html>Welcome</html>", None, "not readable JSON"),
        (b"\xff\xfe\xff", None, "not readable JSON"),
        (b"[" * 100_000, None, "not readable JSON"),
        (b"1" * 5000, None, "not readable JSON"),
        (b"{}", None, "lacks or garbles"),
        (b"null", None, "lacks or garbles"),
        (b'"ok"', None, "lacks or garbles"),
        (b'{"data": null}', None, "lacks or garbles"),
        (
            b'{"id": "sms',
            "it is larger than max_response_bytes",
            "is incomplete (it is larger than max_response_bytes)",
        ),
    ],
    # The one is charged for whatever was answered, the other is a list.
    whole=(endpoints.LOOKUP_PHONE, endpoints.FIND_OTPS),
    once=WITH_A_BODY,
)
def test_unreadable_success_is_unknown(endpoint: Endpoint[Any], body: bytes, body_error: str | None, told: str) -> None:
    error = error_of(endpoint, answer(200, body, body_error=body_error))
    assert isinstance(error, errors.CpaasUnknownOutcomeError)
    assert told in str(error)
    # A look-up that was answered was charged.
    answered = {RetrySafety.BILLED_READ: (False, False)}
    assert facts(error) == answered.get(endpoint.retry_safety, NO_ANSWER[endpoint.retry_safety])


@with_a_body
def test_success_without_a_required_field_is_unknown(endpoint: Endpoint[Any]) -> None:
    sample = SAMPLES[endpoint.operation]
    if endpoint is endpoints.FIND_OTPS:
        sample = OTP
    required = {
        "send_sms": ["id"],
        "send_email": ["id"],
        "buy_airtime": ["id"],
        "lookup_phone": ["msisdn"],
        "get_contact_table": ["id", "columns"],
    }.get(endpoint.operation, ["row"] if "row" in sample else list(OTP))
    for field in required:
        for broken in ({k: v for k, v in sample.items() if k != field}, {**sample, field: None}):
            body = [broken] if endpoint is endpoints.FIND_OTPS else broken
            error = error_of(endpoint, answer(200, body))
            if endpoint is endpoints.GET_CONTACT_ROW and field in broken:
                assert isinstance(error, errors.CpaasNotFoundError)
                continue
            assert isinstance(error, errors.CpaasUnknownOutcomeError)
            assert f"lacks or garbles {field} (HTTP 200)" in str(error)


@pytest.mark.parametrize("endpoint", [endpoints.GET_CONTACT_ROW, endpoints.UPDATE_CONTACT_ROW, endpoints.GET_OTP])
def test_message_without_resource_is_a_rejection_where_a_repeat_does_no_harm(endpoint: Endpoint[Any]) -> None:
    assert isinstance(
        error_of(endpoint, answer(200, {"status": 200, "message": "Row not found"})), errors.CpaasRejectedError
    )
    for body in (
        {"status": 500, "message": "Row not found"},
        {"message": "Row not found", "row": {"columns": {}}},
        {"message": " "},
        {},
    ):
        assert isinstance(error_of(endpoint, answer(200, body)), errors.CpaasUnknownOutcomeError)


def test_message_without_resource_leaves_a_creation_unknown() -> None:
    body = {"status": 200, "message": "Not created"}
    error = error_of(endpoints.CREATE_CONTACT_ROW, answer(200, body))
    assert isinstance(error, errors.CpaasUnknownOutcomeError)


# Whatever comes -----------------------------------------------------------------------------------------------------

KEYS = ["id", "status", "message", "errors", "type", "data", "field", "recipients", "sender_id", "row", "columns"]
KEYS += ["recipient", "status_desc", "created_datetime", "msisdn", "meta", "estimate", "charge"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.just(10**400),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=6,
        )
    ),
    max_leaves=15,
)
bodies = json_values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40)
statuses = st.sampled_from([200, 201, 204, 301, 400, 401, 404, 429, 500, 503]) | st.integers(100, 999)
answers = st.builds(
    HttpResponse,
    statuses,
    st.none() | st.sampled_from(["5", "soon", "0"]),
    bodies,
    st.none() | st.just("the connection broke"),
)


@given(st.sampled_from(ENDPOINTS), answers)
def test_any_response_is_read_or_raises_a_provider_error(endpoint: Endpoint[Any], given: HttpResponse) -> None:
    try:
        parse_response(endpoint, given)
    except errors.CpaasError as error:
        outcome = error
    else:
        assert given.status < 300
        return
    assert len(str(outcome)) < 700
    surely_not_sent = isinstance(outcome, errors.CpaasNotSentError)
    if endpoint.retry_safety in (RetrySafety.UNSAFE, RetrySafety.PURCHASE):
        assert not outcome.retryable or surely_not_sent
    if isinstance(outcome, errors.CpaasRejectedError):
        assert not outcome.retryable
        assert not outcome.maybe_sent


secrets = st.text(st.characters(exclude_characters="*…", exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=6)


@given(st.sampled_from(ENDPOINTS), statuses, st.lists(secrets, min_size=1, max_size=3), st.data())
def test_no_error_shows_a_value_that_was_sent(
    endpoint: Endpoint[Any], status: int, private: list[str], data: st.DataObject
) -> None:
    echo = data.draw(st.lists(st.sampled_from([*private, "bad value", "field"]), min_size=1, max_size=6))
    body = {
        "status": data.draw(st.sampled_from([200, 400, 500])),
        "message": " ".join(echo),
        "errors": [{"field": part, "message": part, "type": part} for part in echo],
        **{part: part for part in echo},
    }
    error = error_of(endpoint, answer(status, body), tuple(private))
    # Our own words around the service's may hold a "secret" such as "HTTP" by chance.
    own = str(error_of(endpoint, answer(status, {**body, "message": "", "errors": [{}]})))
    for secret in private:
        assert secret in own or secret not in str(error) + repr(error)


def test_status_of_a_passcode_is_no_error_code() -> None:
    body = {**OTP, "message": "A code was sent", "type": "otp"}
    assert parse_response(endpoints.REQUEST_OTP, answer(200, body)).id == OTP["id"]
