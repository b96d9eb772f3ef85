"""One call from its arguments to its result, driven by hand: no socket, no clock."""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from dataclasses import dataclass, field
from typing import Any

import pytest

from cpaas_provider.api import errors
from cpaas_provider.api import operations as ask
from cpaas_provider.api.core import Call, run_call
from cpaas_provider.api.http.wire import Delay, HttpResponse, OutgoingRequest, TransportFailure
from cpaas_provider.api.rate_limit import RateLimiter
from cpaas_provider.api.settings import ClientSettings

ADA = "2348031234567"
OTP = {
    "id": "otp-1",
    "recipient": ADA,
    "status": 1,
    "status_desc": "SENT",
    "created_datetime": "2024-03-01T10:20:30.5+01:00",
}

READ = ask.get_otp("otp-1")
SEND = ask.send_sms(ADA, "Clinic", "Hello Ada")
BUY = ask.buy_airtime("MTN", 100, ADA)
LOOK_UP = ask.lookup_phone(ADA)
REVOKE = ask.revoke_otp("otp-1")
DELETE = ask.delete_contact_row("row-1")
CALLS = {"read": READ, "send": SEND, "buy": BUY, "look up": LOOK_UP, "revoke": REVOKE, "delete": DELETE}

OK = HttpResponse(200, None, json.dumps({**OTP, "msisdn": ADA}).encode())
GARBLED = HttpResponse(200, None, b"<html>")


@dataclass
class Conversation:
    """What a call asked for, and how it ended."""

    requests: list[OutgoingRequest] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    result: Any = None
    error: errors.CpaasError | None = None


def talk(
    call: Call[Any],
    settings: ClientSettings,
    *replies: HttpResponse | TransportFailure,
    rate_limiter: RateLimiter | None = None,
) -> Conversation:
    """Carry a call through, giving the replies one after the other and the last one for ever."""
    conversation, steps = Conversation(), run_call(call, settings, rate_limiter or RateLimiter(1000))
    remaining = list(replies)
    reply = None
    try:
        while True:
            step = steps.send(reply)
            if isinstance(step, Delay):
                conversation.pauses.append(step.seconds)
                reply = None
            else:
                conversation.requests.append(step)
                reply = remaining.pop(0) if len(remaining) > 1 else remaining[0]
    except StopIteration as end:
        conversation.result = end.value
    except errors.CpaasError as error:
        conversation.error = error
    return conversation


def test_successful_call_makes_one_request(settings: ClientSettings) -> None:
    done = talk(READ, settings, OK)
    assert done.result.id == "otp-1"
    assert (len(done.requests), done.pauses) == (1, [])


def test_request_carries_the_key_once_and_the_user_agent(settings: ClientSettings) -> None:
    (request,) = talk(SEND, settings, OK).requests
    assert request.headers["Authorization"] == f"Bearer {settings.api_key}"
    assert request.headers["Accept"] == "application/json"
    assert request.headers["User-Agent"].startswith("airflow-provider-cpaas/")
    prefixed = ClientSettings(settings.base_url, f"Bearer {settings.api_key}")
    assert talk(READ, prefixed, OK).requests[0].headers["Authorization"] == f"Bearer {settings.api_key}"


def test_request_that_breaks_the_contract_is_not_sent(settings: ClientSettings) -> None:
    done = talk(ask.send_sms("12", "Clinic", "Hello"), settings, OK)
    assert isinstance(done.error, errors.CpaasInvalidRequestError)
    assert done.requests == []


# Which failures are repeated, by what the operation does to the world (README, "What a failure means") ---

ALL = set(CALLS)
HARMLESS = {"read", "revoke", "delete"}
FAILURES: list[tuple[str, HttpResponse | TransportFailure, set[str]]] = [
    ("refused", TransportFailure.REFUSED, ALL),
    ("DNS", TransportFailure.DNS, ALL),
    ("TLS", TransportFailure.TLS, ALL),
    ("connect", TransportFailure.CONNECT, ALL),
    ("connect timeout", TransportFailure.CONNECT_TIMEOUT, ALL),
    ("proxy", TransportFailure.PROXY, ALL),
    ("429", HttpResponse(429), ALL),
    ("429 and when", HttpResponse(429, "0"), ALL),
    ("503 and when", HttpResponse(503, "0"), ALL - {"buy"}),
    ("503", HttpResponse(503), HARMLESS | {"look up"}),
    ("500", HttpResponse(500), HARMLESS | {"look up"}),
    ("502", HttpResponse(502), HARMLESS | {"look up"}),
    ("504", HttpResponse(504), HARMLESS | {"look up"}),
    ("read timeout", TransportFailure.RESPONSE_TIMEOUT, HARMLESS | {"look up"}),
    ("cut", TransportFailure.CONNECTION_LOST, HARMLESS | {"look up"}),
    ("garbled success", GARBLED, HARMLESS),
    ("broken off", HttpResponse(200, None, b"{", "the connection broke"), HARMLESS),
    ("400", HttpResponse(400), set()),
    ("401", HttpResponse(401), set()),
    ("402", HttpResponse(402), set()),
    ("404", HttpResponse(404), set()),
    ("redirect", HttpResponse(302), set()),
    ("error under 200", HttpResponse(200, None, b'{"status": 400, "message": "no"}'), set()),
    ("5xx in the body under 200", HttpResponse(200, None, b'{"status": 500, "message": "no"}'), HARMLESS),
    ("429 in the body under 200", HttpResponse(200, None, b'{"status": 429, "message": "no"}'), ALL),
    ("425", HttpResponse(425), ALL - {"buy"}),
    ("408", HttpResponse(408), HARMLESS | {"look up"}),
]


@pytest.mark.parametrize("kind", sorted(ALL))
@pytest.mark.parametrize(("reply", "repeated"), [one[1:] for one in FAILURES], ids=[one[0] for one in FAILURES])
def test_call_is_retried_only_if_its_retry_safety_allows_it(
    settings: ClientSettings, kind: str, reply: HttpResponse | TransportFailure, repeated: set[str]
) -> None:
    done = talk(CALLS[kind], settings, reply)
    assert done.error is not None
    assert len(done.requests) == (1 + settings.max_retries if kind in repeated else 1)
    assert done.error.retryable is (kind in repeated)
    assert len(set(map(id, done.requests))) == 1, "the very same request"


def test_first_success_ends_the_retries(settings: ClientSettings) -> None:
    done = talk(SEND, settings, TransportFailure.REFUSED, HttpResponse(429), HttpResponse(503, "1"), OK)
    assert done.result.id == "otp-1"
    assert len(done.requests) == 4


def test_unknown_outcome_of_a_retry_ends_the_call(settings: ClientSettings) -> None:
    done = talk(SEND, settings, HttpResponse(429), TransportFailure.CONNECTION_LOST, OK)
    assert isinstance(done.error, errors.CpaasUnknownOutcomeError)
    assert done.error.maybe_sent
    assert len(done.requests) == 2


@pytest.mark.parametrize("max_retries", [0, 1, 7])
def test_max_retries_is_an_option(max_retries: int) -> None:
    settings = ClientSettings("https://cpaas.example.com", "key", max_retries=max_retries)
    assert len(talk(READ, settings, HttpResponse(500)).requests) == 1 + max_retries


# What is gone after an attempt that may have worked -------------------------------------------------------------------


def not_found(call: Call[Any]) -> HttpResponse:
    (field,) = {"id", "row_id"} & call.endpoint.request.model_fields.keys()
    body = {"status": 404, "message": "Not found", "errors": [{"field": field, "message": "is unknown"}]}
    return HttpResponse(404, None, json.dumps(body).encode())


MAY_HAVE_WORKED = pytest.mark.parametrize(
    "first", [TransportFailure.CONNECTION_LOST, TransportFailure.RESPONSE_TIMEOUT, HttpResponse(502), GARBLED]
)


@MAY_HAVE_WORKED
@pytest.mark.parametrize("call", [REVOKE, DELETE], ids=["revoke", "delete"])
def test_not_found_after_an_attempt_that_may_have_worked_is_done(
    settings: ClientSettings, call: Call[Any], first: HttpResponse | TransportFailure
) -> None:
    done = talk(call, settings, first, not_found(call))
    assert (done.result, done.error) == (None, None)


@MAY_HAVE_WORKED
@pytest.mark.parametrize("call", [REVOKE, DELETE], ids=["revoke", "delete"])
def test_404_of_a_gateway_after_an_attempt_that_may_have_worked_proves_no_deletion(
    settings: ClientSettings, call: Call[Any], first: HttpResponse | TransportFailure
) -> None:
    done = talk(call, settings, first, HttpResponse(404, None, b"<html>"))
    assert isinstance(done.error, errors.CpaasRejectedError)
    assert not done.error.is_permanent
    assert done.error.maybe_done


@pytest.mark.parametrize("first", [TransportFailure.REFUSED, HttpResponse(429), HttpResponse(503, "0")])
def test_not_found_after_an_attempt_that_was_not_sent_is_an_error(
    settings: ClientSettings, first: HttpResponse | TransportFailure
) -> None:
    error = talk(DELETE, settings, first, not_found(DELETE)).error
    assert isinstance(error, errors.CpaasNotFoundError)
    assert not error.maybe_done


def test_not_found_after_an_update_that_may_have_worked_is_an_error(settings: ClientSettings) -> None:
    call = ask.update_contact_row("row-1", {"c-1": "Ada"})
    assert isinstance(
        talk(call, settings, TransportFailure.CONNECTION_LOST, not_found(call)).error, errors.CpaasNotFoundError
    )


# How long it waits ----------------------------------------------------------------------------------------------------


def test_retry_delays_double_with_full_jitter(settings: ClientSettings) -> None:
    waits = [talk(READ, settings, HttpResponse(500)).pauses for _ in range(300)]
    for place, longest in enumerate([0.5, 1.0, 2.0, 4.0]):
        drawn = [one[place] for one in waits]
        assert 0 <= min(drawn) < 0.1 * longest, "full jitter begins at nothing"
        assert 0.9 * longest < max(drawn) <= longest


def test_no_retry_delay_exceeds_30_seconds() -> None:
    patient = ClientSettings("https://cpaas.example.com", "key", max_retries=40)
    assert max(talk(READ, patient, HttpResponse(500)).pauses) <= 30


@pytest.mark.parametrize("reply", [HttpResponse(429, "7"), HttpResponse(503, "7")])
def test_retry_after_is_obeyed_to_the_second(settings: ClientSettings, reply: HttpResponse) -> None:
    assert talk(SEND, settings, reply, OK).pauses == [7]


@pytest.mark.parametrize("asked", ["0", "0.0", "Mon, 01 Jan 2001 00:00:00 GMT"])
@pytest.mark.parametrize("status", [425, 429, 503])
def test_retry_after_of_zero_does_not_shorten_the_backoff(
    settings: ClientSettings, monkeypatch: pytest.MonkeyPatch, status: int, asked: str
) -> None:
    monkeypatch.setattr("random.uniform", lambda least, most: most)
    assert talk(SEND, settings, HttpResponse(status, asked)).pauses == [0.5, 1.0, 2.0, 4.0]


def test_retry_after_up_to_the_cap(settings: ClientSettings) -> None:
    assert talk(SEND, settings, HttpResponse(429, "60"), OK).pauses == [60]
    done = talk(SEND, settings, HttpResponse(429, "61"), OK)
    assert done.pauses == []
    assert isinstance(done.error, errors.CpaasRateLimitedError)
    assert (done.error.retry_after, done.error.retryable) == (61, True)


def test_retry_after_of_one_call_delays_all_calls(settings: ClientSettings) -> None:
    rate_limiter = RateLimiter(1000, clock=lambda: 0.0)
    talk(SEND, settings, HttpResponse(429, "7"), OK, rate_limiter=rate_limiter)
    assert rate_limiter.reserve() == 7


def test_429_without_retry_after_delays_all_calls(settings: ClientSettings) -> None:
    rate_limiter = RateLimiter(1000, clock=lambda: 0.0)
    done = talk(SEND, settings, HttpResponse(429), HttpResponse(429), OK, rate_limiter=rate_limiter)
    assert rate_limiter.reserve() == max(done.pauses)


def test_429_of_the_last_attempt_delays_all_calls(settings: ClientSettings) -> None:
    once = ClientSettings(settings.base_url, settings.api_key, max_retries=0)
    rate_limiter = RateLimiter(1000, clock=lambda: 0.0)
    done = talk(SEND, once, HttpResponse(429, "7"), rate_limiter=rate_limiter)
    assert (len(done.requests), rate_limiter.reserve()) == (1, 7)


def test_retry_after_above_the_maximum_delays_no_call(settings: ClientSettings) -> None:
    rate_limiter = RateLimiter(1000, clock=lambda: 0.0)
    assert talk(SEND, settings, HttpResponse(429, "61"), rate_limiter=rate_limiter).error is not None
    assert rate_limiter.reserve() == 0


def test_connection_failure_delays_no_other_call(settings: ClientSettings) -> None:
    rate_limiter = RateLimiter(1000, clock=lambda: 0.0)
    talk(SEND, settings, TransportFailure.REFUSED, OK, rate_limiter=rate_limiter)
    assert rate_limiter.reserve() == 0


# What is said ---------------------------------------------------------------------------------------------------------


def test_retry_is_logged_without_content_and_recipient(
    settings: ClientSettings, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        talk(SEND, settings, HttpResponse(429, "7"), TransportFailure.REFUSED, OK)
    assert caplog.records[0].getMessage() == (
        "send_sms: the service asked for fewer requests for 7 s (HTTP 429). Nothing was done. Wait as long as the "
        "service asks, or lower requests_per_second. Attempt 2 of 5 follows in 7.0 s."
    )
    assert ADA not in caplog.text
    assert "Hello" not in caplog.text


@pytest.mark.parametrize(
    ("call", "secret"),
    [
        (SEND, "Hello Ada"),
        (SEND, ADA),
        (ask.verify_otp("otp-1", "471199"), "471199"),
        (ask.request_otp(ADA, token="471199"), "471199"),
        (ask.create_contact_row({"c-1": "Ada Lovelace"}), "Ada Lovelace"),
        (ask.send_sms(ADA, "Clinic", "Hi", callback="https://example.com/s3cr3t"), "https://example.com/s3cr3t"),
        (ask.find_otps(ADA), ADA),
    ],
)
def test_error_redacts_values_that_the_service_repeats(settings: ClientSettings, call: Call[Any], secret: str) -> None:
    echo = {
        "status": 400,
        "message": f"cannot take {secret}",
        "errors": [{"field": secret, "message": settings.api_key}],
    }
    error = talk(call, settings, HttpResponse(400, None, json.dumps(echo).encode())).error
    assert "cannot take ***" in str(error)
    for private in (secret, settings.api_key):
        assert private not in str(error) + repr(error)


def test_errors_are_raised_without_a_chained_exception(settings: ClientSettings) -> None:
    # What is chained to an error is printed with it.
    for done in (
        talk(ask.send_sms("12", "Clinic", "Hello"), settings, OK),
        talk(ask.create_contact_row({"c-1": b"\xff"}), settings, OK),
        talk(SEND, settings, GARBLED),
        talk(SEND, settings, TransportFailure.REFUSED),
    ):
        assert done.error is not None
        assert done.error.__cause__ is None
        assert done.error.__context__ is None or done.error.__suppress_context__


# Whom a refusal is about ----------------------------------------------------------------------------------------------

BOB = "2348031234568"


def refusal(settings: ClientSettings, *items: dict[str, str], status: int = 400) -> errors.CpaasRejectedError:
    body = {"status": 400, "message": "The request is not valid", "errors": items}
    error = talk(
        ask.send_sms(
            [ADA, BOB], "Clinic", "Hello {first}", personalisation=[{"to": BOB, "substitutions": {"first": 1}}]
        ),
        settings,
        HttpResponse(status, None, json.dumps(body).encode()),
    ).error
    assert isinstance(error, errors.CpaasRejectedError)
    return error


@pytest.mark.parametrize("status", [200, 400])
def test_rejection_names_its_recipients_without_showing_them(settings: ClientSettings, status: int) -> None:
    item = {"field": "recipients", "message": f"{BOB} is not a valid recipient", "type": "invalid_recipient"}
    error = refusal(settings, item, status=status)
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert (one.rejected_recipients, one.is_message_error) == ((BOB,), False)
        assert BOB not in str(one) + repr(one) + "".join(traceback.format_exception(one))


def accepted(settings: ClientSettings, body: dict[str, Any]) -> Any:
    done = talk(
        ask.send_sms([ADA, BOB], "Clinic", "Hello"), settings, HttpResponse(200, None, json.dumps(body).encode())
    )
    assert done.error is None
    return done.result


ITEM = {"field": "recipients", "message": f"{BOB} is not a valid recipient", "type": "invalid_recipient"}


@pytest.mark.parametrize(
    "body",
    [
        {"id": "sms-1", "message": "One is left out", "errors": [ITEM]},
        {"id": "sms-1", "errors": [ITEM]},
        {"status": 200, "message": "One is left out", "errors": [ITEM], "data": {"id": "sms-1"}},
        {"status": 400, "message": "One is left out", "errors": [ITEM], "data": {"id": "sms-1"}},
        {"status": "success", "data": {"id": "sms-1", "errors": [ITEM]}},
    ],
)
def test_accepted_message_names_rejected_recipients_without_showing_them(
    settings: ClientSettings, body: dict[str, Any]
) -> None:
    message = accepted(settings, body)
    for one in (message, pickle.loads(pickle.dumps(message))):
        assert (one.id, one.rejected_recipients) == ("sms-1", (BOB,))
        assert "is not a valid recipient" in one.rejection
        assert BOB not in one.rejection + repr(one)


def test_accepted_message_without_errors_has_no_rejected_recipients(settings: ClientSettings) -> None:
    message = accepted(settings, {"id": "sms-1", "errors": [], "rejected_recipients": [ADA]})
    assert (message.rejected_recipients, message.rejection) == ((), None)


def test_rejection_of_the_text_is_a_message_error_without_recipients(settings: ClientSettings) -> None:
    error = refusal(settings, {"field": "sender_id", "message": "is not registered", "type": "value_error"})
    assert (error.rejected_recipients, error.is_message_error) == ((), True)


def test_rejection_without_items_is_about_neither_recipients_nor_message(settings: ClientSettings) -> None:
    error = refusal(settings)
    assert (error.rejected_recipients, error.is_message_error) == ((), False)


class TestInsufficientBalance:
    """The contract has no status for it but 400."""

    SETTINGS = ClientSettings("https://api.example.com", "sk_test_1")

    @staticmethod
    def refusal(message: str, status: int = 400, http: int = 400) -> HttpResponse:
        return HttpResponse(http, None, json.dumps({"status": status, "message": message, "errors": []}).encode())

    @pytest.mark.parametrize("call", [SEND, BUY, LOOK_UP], ids=["send", "buy", "look up"])
    @pytest.mark.parametrize("message", ["Insufficient balance", "INSUFFICIENT  FUNDS here.", "insufficient credit"])
    def test_rejection_with_balance_words_is_insufficient_balance(self, call: Call[Any], message: str) -> None:
        error = talk(call, self.SETTINGS, self.refusal(message)).error
        assert type(error) is errors.CpaasInsufficientBalanceError
        assert "Top up the account" in str(error)
        assert "Correct the request" not in str(error)
        assert (error.status, error.retryable, error.maybe_sent) == (400, False, False)

    def test_rejection_with_other_words_is_a_plain_rejection(self) -> None:
        assert type(talk(SEND, self.SETTINGS, self.refusal("Bad text")).error) is errors.CpaasRejectedError

    def test_balance_words_are_configurable(self) -> None:
        settings = ClientSettings("https://api.example.com", "sk_test_1", insufficient_balance_words=["solde épuisé"])
        error = talk(SEND, settings, self.refusal("Solde épuisé")).error
        assert type(error) is errors.CpaasInsufficientBalanceError
        assert type(talk(SEND, settings, self.refusal("Insufficient balance")).error) is errors.CpaasRejectedError

    def test_balance_words_that_were_sent_do_not_count(self) -> None:
        call = ask.send_sms(ADA, "Clinic", "Insufficient balance: top up")
        error = talk(call, self.SETTINGS, self.refusal("Refused text: Insufficient balance: top up")).error
        assert type(error) is errors.CpaasRejectedError

    @pytest.mark.parametrize("words", ["", "insufficient balance", [""], [5], 5])
    def test_invalid_balance_words_are_refused(self, words: Any) -> None:
        with pytest.raises(errors.CpaasConfigurationError, match="insufficient_balance_words"):
            ClientSettings("https://api.example.com", "sk_test_1", insufficient_balance_words=words)
