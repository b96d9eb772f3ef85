"""The OpenAPI document follows the settings, the columns and the templates."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.cpaas_sandbox.conftest import ADA, Harness


def document(sandbox: Harness) -> dict[str, Any]:
    return dict(sandbox.call("GET", "/openapi.json").json())


def success(sandbox: Harness, path: str, method: str) -> dict[str, Any]:
    return dict(document(sandbox)["paths"][path][method]["responses"])


def test_envelope_is_described_around_results_and_their_links(sandbox: Harness) -> None:
    sandbox.settings(envelope=True)
    response = success(sandbox, "/otp/request_token", "post")["200"]
    schema = response["content"]["application/json"]["schema"]
    assert schema["properties"]["data"] == {"$ref": "#/components/schemas/Token"}
    assert response["links"]["fetch"]["parameters"] == {"id": "$response.body#/data/id"}


def test_revoking_is_linked_only_where_it_ends_a_passcode(sandbox: Harness) -> None:
    assert "revoke" not in success(sandbox, "/otp/request_token", "post")["200"]["links"]
    sandbox.settings(revoked_otps="gone")
    assert "revoke" in success(sandbox, "/otp/request_token", "post")["200"]["links"]


@pytest.mark.parametrize(("setting", "described"), [("message", "Message"), ("record", "ContactRow"), ("empty", None)])
def test_deletion_is_described_as_configured(sandbox: Harness, setting: str, described: str | None) -> None:
    sandbox.settings(delete_body=setting)
    responses = success(sandbox, "/lists/contact/rows/{row_id}", "delete")
    if described is None:
        assert "200" not in responses
        assert responses["204"] == {"description": "Done"}
    else:
        schema = responses["200"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": f"#/components/schemas/{described}"}


def test_unknown_fields_are_described_as_configured(sandbox: Harness) -> None:
    assert "additionalProperties" not in document(sandbox)["components"]["schemas"]["SendSmsRequest"]
    sandbox.settings(unknown_fields="reject")
    assert document(sandbox)["components"]["schemas"]["SendSmsRequest"]["additionalProperties"] is False
    body = {"columns": {}, "colour": "red"}
    assert sandbox.refused(400, "POST", "/lists/contact/rows", body) == {"colour": "extra_forbidden"}


@pytest.mark.parametrize("setting", ["402", "400", "under_200"])
def test_missing_balance_is_described_as_it_is_set(sandbox: Harness, setting: str) -> None:
    sandbox.control("PUT", "balance", {"balance": 1})
    sandbox.settings(insufficient_balance=setting)
    answer = sandbox.sms()
    described = document(sandbox)
    responses = described["paths"]["/sms/send"]["post"]["responses"]
    assert ("402" in responses) is (setting == "402")
    schema = responses[str(answer.status_code)]["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": described["components"]}).validate(answer.json())


def test_key_is_described_as_it_is_set(sandbox: Harness) -> None:
    assert document(sandbox)["components"]["securitySchemes"]["api_key"]["type"] == "http"
    sandbox.settings(auth_scheme="raw")
    assert document(sandbox)["components"]["securitySchemes"]["api_key"]["type"] == "apiKey"


def test_responses_match_their_schemas(sandbox: Harness) -> None:
    schemas = document(sandbox)["components"]["schemas"]
    answers = {
        "SmsMessage": sandbox.sms(external_ref="r").json(),
        "Token": sandbox.ok("POST", "/otp/request_token", {"recipient": ADA}),
        "AirtimePurchase": sandbox.ok("POST", "/airtime/buy", {"network": "MTN", "amount": 50, "recipient": ADA}),
        "RowAndTable": sandbox.ok("POST", "/lists/contact/rows", {"columns": {}}),
        "PhoneLookup": sandbox.ok("GET", "/lookup/phone", {"phone": ADA}),
        "Error": sandbox.call("POST", "/sms/send", {}).json(),
    }
    for name, answer in answers.items():
        Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}).validate(
            answer
        )
