"""The validators of the models are built at first use, in whatever thread that is."""

from __future__ import annotations

import subprocess
import sys

_MODELS = """
from cpaas_provider.api import endpoints
from cpaas_provider.api.models.base import WireRequest, WireResource
from cpaas_provider.api.operations import send_sms
from cpaas_provider.api.settings import ClientSettings

def models(base):
    return {base}.union(*map(models, base.__subclasses__()))

def built():
    found = models(WireRequest) | models(WireResource)
    assert len(found) > 20
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
