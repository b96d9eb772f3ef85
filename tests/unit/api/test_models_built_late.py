"""The models of an operation are loaded and built at its first use, in whatever thread that is."""

from __future__ import annotations

import subprocess
import sys
import typing

import pytest
from pydantic import TypeAdapter

from cpaas_provider.api import endpoints
from cpaas_provider.api.endpoints import Endpoint
from cpaas_provider.api.models import airtime, contacts, email, lookup, otp, sms
from cpaas_provider.api.models.base import WireRequest

ENDPOINTS = {name: value for name, value in vars(endpoints).items() if isinstance(value, Endpoint)}
MODELS = {
    name: model for module in (airtime, contacts, email, lookup, otp, sms) for name, model in vars(module).items()
}

_MODELS = """
from cpaas_provider.api import endpoints
from cpaas_provider.api.models.base import WireRequest, WireResource
from cpaas_provider.api.operations import send_sms
from cpaas_provider.api.settings import ClientSettings

def models(base):
    return {base}.union(*map(models, base.__subclasses__()))

def loaded():
    return sorted(model.__name__ for model in models(WireRequest) | models(WireResource))

def built():
    found = models(WireRequest) | models(WireResource)
    return sorted(model.__name__ for model in found if model.__pydantic_complete__)

def send(_=None):
    call = send_sms(["+2348030000001"], "Shop", "Hello")
    request, _ = call.build(ClientSettings("http://127.0.0.1:1", "key"))
    return request.method
"""


def _run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", _MODELS + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_request_builds_its_own_model_only() -> None:
    assert _run("before = built(); send(); print(before, built())") == "[] ['SendSmsRequest']"


def test_client_loads_no_model_before_its_first_call() -> None:
    assert _run("import cpaas_provider.api.client; print(loaded())") == "['WireRequest', 'WireResource']"


def test_sms_loads_only_models_of_sms() -> None:
    of_messages = {"Estimate", "Message", "MessageMeta", "MessageRequest", "PersonalisationOfMessage"}
    of_sms = {"SendSmsRequest", "SmsMessage", "SmsPersonalisation"}
    expected = sorted({"WireRequest", "WireResource"} | of_messages | of_sms)
    assert _run("send(); endpoints.SEND_SMS.reader; print(loaded())") == str(expected)


@pytest.mark.parametrize("name", ENDPOINTS)
def test_endpoint_names_the_models_of_its_type(name: str) -> None:
    (resource,) = typing.get_args(eval(endpoints.__annotations__[name], {"Endpoint": Endpoint, **MODELS}))
    endpoint = ENDPOINTS[name]
    assert issubclass(endpoint.request, WireRequest)
    assert endpoint.reader.core_schema == TypeAdapter(resource).core_schema
    assert endpoint.allows_empty_response == (resource is type(None) or resource is None)


def test_many_threads_may_build_a_model_at_once() -> None:
    program = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
sys.setswitchinterval(1e-6)
start = threading.Barrier(16)

def read(number):
    start.wait()
    if number % 2:
        return send()
    body = {"id": "m-1", "status": "sent", "type": "sms", "status_desc": "Sent"}
    return endpoints.SEND_SMS.reader.validate_python(body).model_dump()["id"]

with ThreadPoolExecutor(16) as threads:
    print(sorted(set(threads.map(read, range(16)))))
"""
    assert _run(program) == "['POST', 'm-1']"
