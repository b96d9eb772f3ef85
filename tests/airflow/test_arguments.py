"""Invalid arguments are refused in the DAG file, with the argument, its value and its bounds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, task

from cpaas_provider.api import bounds
from cpaas_provider.api.models.airtime import BuyAirtimeRequest
from cpaas_provider.api.models.otp import RequestOtpRequest
from cpaas_provider.operators import (
    BuyAirtimeOperator,
    CreateContactRowOperator,
    EmailCampaignOperator,
    GetContactRowOperator,
    PhoneLookupOperator,
    RequestOtpOperator,
    SendEmailOperator,
    SendSmsOperator,
    SmsCampaignOperator,
    UpdateContactRowOperator,
)
from cpaas_provider.sensors import DeliverySensor, OtpStatusSensor

PHONE = "08031234567"
GIVEN: dict[Callable[..., Any], dict[str, Any]] = {
    SendSmsOperator: {"recipients": [PHONE], "content": "Hello"},
    SendEmailOperator: {"recipients": ["ada@example.org"], "content": "Hello"},
    SmsCampaignOperator: {"source": [PHONE], "content": "Hello"},
    EmailCampaignOperator: {"source": ["ada@example.org"], "content": "Hello"},
    BuyAirtimeOperator: {"network": "MTN", "amount": 100, "recipient": PHONE},
    RequestOtpOperator: {"recipient": PHONE},
    OtpStatusSensor: {"otp_id": "o1"},
    DeliverySensor: {"send_result": "cpaas-1"},
    PhoneLookupOperator: {"phone": PHONE},
    GetContactRowOperator: {"row_id": "row-1"},
    CreateContactRowOperator: {"columns": {"Name": "Ada"}},
    UpdateContactRowOperator: {"row_id": "row-1", "columns": {"Name": "Ada"}},
}
NETWORKS = "Airtel, MTN, Glo, 9mobile, NTEL"
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (PhoneLookupOperator, {"return_fields": "dnd"}, "return_fields must be a list of texts; it is 'dnd'"),
    (GetContactRowOperator, {"return_fields": "Name"}, "return_fields must be a list of texts; it is 'Name'"),
    *(
        (kind, {"empty_cell_value": "none"}, "empty_cell_value must be one of null, empty; it is 'none'")
        for kind in (CreateContactRowOperator, UpdateContactRowOperator)
    ),
    (SmsCampaignOperator, {"substitutions": "name"}, "substitutions must be a list of texts; it is 'name'"),
    (OtpStatusSensor, {"success_statuses": "VERIFIED"}, "success_statuses must be a list of texts"),
    *((one, {"content": None}, "neither content nor template_id is given") for one in list(GIVEN)[:4]),
    *((one, {"content": ""}, "neither content nor template_id is given") for one in list(GIVEN)[:4]),
    (SendSmsOperator, {"channel": "fax"}, "channel must be one of sms, whatsapp; it is 'fax'"),
    (SmsCampaignOperator, {"channel": "fax"}, "channel must be one of sms, whatsapp; it is 'fax'"),
    (RequestOtpOperator, {"channel": "fax"}, "channel must be one of sms, whatsapp; it is 'fax'"),
    (BuyAirtimeOperator, {"network": "Vodafone"}, f"network must be one of {NETWORKS}; it is 'Vodafone'"),
    (BuyAirtimeOperator, {"amount": 49}, "amount must be a number of at least 50; it is 49"),
    (BuyAirtimeOperator, {"amount": "49.99"}, "amount must be a number of at least 50; it is '49.99'"),
    (BuyAirtimeOperator, {"amount": "much"}, "amount must be a number of at least 50; it is 'much'"),
    (BuyAirtimeOperator, {"amount": True}, "amount must be a number of at least 50; it is True"),
    (BuyAirtimeOperator, {"amount": float("nan")}, "amount must be a number of at least 50; it is nan"),
    (RequestOtpOperator, {"length": 3}, "length must be a whole number from 4 to 8; it is 3"),
    (RequestOtpOperator, {"length": "9"}, "length must be a whole number from 4 to 8; it is '9'"),
    (RequestOtpOperator, {"expires_in": 0}, "expires_in must be a whole number from 1 to 60; it is 0"),
    (RequestOtpOperator, {"expires_in": 61}, "expires_in must be a whole number from 1 to 60; it is 61"),
    (RequestOtpOperator, {"expires_in": 1.5}, "expires_in must be a whole number from 1 to 60; it is 1.5"),
    (OtpStatusSensor, {"expires_in": "a while"}, "expires_in must be a whole number from 1 to 60; it is 'a while'"),
    *(
        (one, {"poke_interval": given}, "poke_interval must be a timedelta or number of at least 1 second")
        for one in (OtpStatusSensor, DeliverySensor)
        for given in (0, 0.5, timedelta(milliseconds=10), "soon", True)
    ),
    *(
        (one, {"results_path": path}, f"results_path must end in one of .jsonl, .ndjson, .parquet; it is '{path}'")
        for one in (SmsCampaignOperator, EmailCampaignOperator, DeliverySensor)
        for path in ("/tmp/o.csv", "/tmp/outcomes", "s3://o/{{ ds }}.csv", "{{ ds }}/o.json")
    ),
    *(
        (one, {"template_id": "tpl", "content": None}, "a campaign with template_id needs substitutions")
        for one in (SmsCampaignOperator, EmailCampaignOperator)
    ),
    (SmsCampaignOperator, {"template_id": "{{ params.t }}", "content": None}, "give substitutions=\\[\\]"),
]
TAKEN: list[tuple[Any, dict[str, Any]]] = [
    *((one, {"content": None, "template_id": "tpl"}) for one in list(GIVEN)[:2]),
    *((one, {"content": None, "template_id": "tpl", "substitutions": []}) for one in list(GIVEN)[2:4]),
    *((one, {"content": None, "template_id": "tpl", "substitutions": ["name"]}) for one in list(GIVEN)[2:4]),
    *((one, {"content": "{{ params.text }}"}) for one in list(GIVEN)[:4]),
    (BuyAirtimeOperator, {"network": " mtn ", "amount": "50"}),
    (BuyAirtimeOperator, {"network": "{{ params.network }}", "amount": "{{ params.amount }}"}),
    (RequestOtpOperator, {"length": "{{ 3 }}", "expires_in": "{% if true %}5{% endif %}", "channel": "{{ 'sms' }}"}),
    (RequestOtpOperator, {"length": "6", "expires_in": "15.0", "channel": "whatsapp"}),
    (OtpStatusSensor, {"poke_interval": timedelta(seconds=1), "expires_in": "{{ 1 }}"}),
    (DeliverySensor, {"poke_interval": 1, "results_path": "{{ params.path }}"}),
    (SmsCampaignOperator, {"results_path": "s3://o/{{ ds }}.jsonl"}),
    (SmsCampaignOperator, {"results_path": "s3://o/{{ 'a.parquet' }}"}),
]


def make_operator(operator: Any, **given: Any) -> Any:
    return operator(task_id="made", **{**GIVEN[operator], **given})


@pytest.mark.parametrize(("operator", "given", "words"), REFUSED)
def test_invalid_argument_is_refused_in_the_dag_file(operator: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="made.*" + words.replace("(", r"\(").replace("{", r"\{")) as refused:
        make_operator(operator, **given)
    assert PHONE not in str(refused.value)


@pytest.mark.parametrize(("operator", "given"), TAKEN)
def test_valid_argument_or_template_is_accepted_in_the_dag_file(operator: Any, given: dict[str, Any]) -> None:
    make_operator(operator, **given)


def test_output_of_another_task_is_accepted() -> None:
    with DAG("arguments_of_another_task", schedule=None):

        @task
        def upstream_value() -> str:
            return "x"

        BuyAirtimeOperator(task_id="buy", network=upstream_value(), amount=upstream_value(), recipient=upstream_value())
        RequestOtpOperator(
            task_id="request",
            recipient=upstream_value(),
            length=upstream_value(),
            expires_in=upstream_value(),
            channel=upstream_value(),
        )
        OtpStatusSensor(task_id="otp", otp_id=upstream_value(), expires_in=upstream_value())
        SendSmsOperator(task_id="send", recipients=upstream_value(), content=upstream_value())
        SmsCampaignOperator(
            task_id="campaign", source=upstream_value(), content=upstream_value(), results_path=upstream_value()
        )
        DeliverySensor(task_id="delivered", send_result=upstream_value(), results_path=upstream_value())


@pytest.mark.parametrize("amount", [49.99, 50, "50", 0, -1, "x"])
@pytest.mark.parametrize("network", ["MTN", "ntel", "Vodafone"])
def test_purchase_arguments_have_the_bounds_of_the_request(network: str, amount: Any) -> None:
    def fits(check: Callable[[], Any]) -> bool:
        try:
            check()
        except ValueError:
            return False
        return True

    here = fits(lambda: bounds.network("network", network)) and fits(lambda: bounds.airtime_amount("amount", amount))
    request = {"network": network, "amount": amount, "recipient": "+2348031234567"}
    assert here == fits(lambda: BuyAirtimeRequest.model_validate(request))


@pytest.mark.parametrize("field", ["length", "expires_in"])
@pytest.mark.parametrize("value", [0, 1, 3, 4, 8, 9, 60, 61, "5", "5.0", "5.5", 5.5, "x"])
def test_passcode_arguments_have_the_bounds_of_the_request(field: str, value: Any) -> None:
    limits = {"length": bounds.OTP_DIGITS, "expires_in": bounds.OTP_MINUTES}[field]
    try:
        bounds.whole_within(*limits)(field, value)
        here = True
    except ValueError:
        here = False
    try:
        RequestOtpRequest.model_validate({"recipient": "+2348031234567", field: value})
        there = True
    except ValueError:
        there = False
    assert here == there
