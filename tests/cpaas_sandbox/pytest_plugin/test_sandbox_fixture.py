"""The fixture ``sandbox`` in projects of users, without Airflow: each test writes a project and runs it."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

# Loaded here, so that no project of a test loads it anew.
import cpaas_sandbox.pytest_plugin.handle
import cpaas_sandbox.server
from cpaas_provider.api import CpaasClient

pytest_plugins = "pytester"

OPTIONS = ("-p", "no:schemathesis", "-p", "no:cacheprovider", "-p", "no:random_order", "-q")
HEAD = """
import json, os, re, socket, sys
import pytest
from cpaas_provider.api import CpaasClient
from cpaas_sandbox.pytest_plugin import NotSentError, SandboxError

def client(sandbox, **options):
    return CpaasClient(sandbox.url, sandbox.api_key, **options)

def send(sandbox, *numbers, text="Hello"):
    with client(sandbox) as service:
        service.send_sms(list(numbers), content=text, sender_id="Example")
"""

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run_project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Write tests and run them. pytest's configuration has the region NG, unless another text is given."""

    def run(tests: str, ini: str = "cpaas_region = NG", *arguments: str) -> pytest.RunResult:
        pytester.makeini(f"[pytest]\n{ini}\nasyncio_default_fixture_loop_scope = function\n")
        pytester.makepyfile(HEAD + tests)
        return pytester.runpytest_inprocess(*OPTIONS, *arguments)

    return run


def test_modules_that_projects_need_are_loaded() -> None:
    assert CpaasClient
    assert cpaas_sandbox.server
    assert cpaas_sandbox.pytest_plugin.handle


class TestItems:
    def test_number_is_read_in_any_usual_form(self, run_project: Run) -> None:
        run_project("""
@pytest.mark.parametrize("number", ["0803 123 4567", "+234 803 123 4567", "2348031234567", "(0803) 123-4567"])
def test_it(sandbox, number):
    send(sandbox, "+2348031234567")
    message = sandbox.sms_to(number)
    assert (message.recipient, message.text, message.sender_id) == ("2348031234567", "Hello", "Example")
    assert (message.channel, message.status, message.pages) == ("sms", "delivered", 1)

def test_region_of_a_call(sandbox):
    send(sandbox, "+12025550145")
    assert sandbox.sms_to("(202) 555-0145", region="US").text == "Hello"
""").assert_outcomes(passed=5)

    def test_national_digits_without_a_leading_zero(self, run_project: Run) -> None:
        run_project(
            """
@pytest.mark.parametrize("number", ["2025550145", "12025550145", "+1 202 555 0145"])
def test_region_of_the_number(sandbox, number):
    sandbox.reject("3105550145")
    send(sandbox, "+12025550145")
    assert sandbox.sms_to(number).text == "Hello"
    with pytest.raises(Exception):
        send(sandbox, "+13105550145")

def test_other_region(sandbox):
    send(sandbox, "+2348031234567")
    assert sandbox.sms_to("2348031234567").text == "Hello"
""",
            "cpaas_region = US",
        ).assert_outcomes(passed=4)

    def test_emails_passcodes_airtime_and_contacts_are_read(self, run_project: Run) -> None:
        run_project("""
def test_email(sandbox):
    with client(sandbox) as service:
        service.send_email(["ada@example.com"], subject="News", content="Hello", sender_id="a@example.com")
    email = sandbox.email_to("Ada@Example.com")
    assert (email.subject, email.text, email.sender_id) == ("News", "Hello", "a@example.com")
    assert [email.recipient for email in sandbox.emails] == ["ada@example.com"]

def test_passcode(sandbox):
    with client(sandbox) as service:
        service.request_otp("+2348031234567", length=6)
    otp = sandbox.otp_to("08031234567")
    assert (otp.status, len(otp.code)) == ("SENT", 6)
    assert not otp.verify("000000" if otp.code != "000000" else "111111")
    assert otp.verify()
    assert sandbox.otp_to("08031234567").status == "VERIFIED"
    assert otp.code not in repr(otp)

def test_airtime(sandbox):
    with client(sandbox) as service:
        service.buy_airtime(network="MTN", amount=50, recipient="+2348031234567")
    purchase = sandbox.airtime_to("08031234567")
    assert (purchase.amount, purchase.network, purchase.status) == (50, "MTN", "pending")
    sandbox.clock.advance(seconds=3)
    assert [purchase.status for purchase in sandbox.airtime] == ["success"]

def test_contacts(sandbox):
    with client(sandbox) as service:
        columns = {column.name: column.id for column in service.get_contact_table().columns}
        service.create_contact_row({columns["Name"]: "Ada", columns["Points"]: 7})
    assert sandbox.contacts == [{"Name": "Ada", "Points": 7}]
    assert sandbox.contact(Name="Ada")["Points"] == 7
    with pytest.raises(NotSentError, match="No rows of the contact list have Name='Eve'. All 1 rows:"):
        sandbox.contact(Name="Eve")
""").assert_outcomes(passed=4)

    def test_lists_are_oldest_first_and_whole(self, run_project: Run) -> None:
        run_project("""
def test_it(sandbox):
    numbers = [f"2348035{number:06}" for number in range(1100)]
    send(sandbox, *(f"+{number}" for number in numbers[:600]))
    send(sandbox, *(f"+{number}" for number in numbers[600:]))
    assert [message.recipient for message in sandbox.sms] == numbers
""").assert_outcomes(passed=1)


class TestErrors:
    def test_missing_message_lists_what_was_sent_and_requests(self, run_project: Run) -> None:
        result = run_project("""
def test_it(sandbox):
    send(sandbox, "+2348030000001", text="Hello Ada")
    send(sandbox, "+2348030000002", text="x" * 80)
    assert sandbox.sms_to("0803 123 4567").text == "Hello"
""")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            [
                "E * No SMS to 2348031234567 ('0803 123 4567'). The sandbox accepted 2 SMS:",
                "E * 2348030000001  'Hello Ada'",
                f"E * 2348030000002  '{'x' * 60}...'",
                "E * Requests of send_sms: 2 received, 0 rejected.",
            ]
        )
        # The traceback ends in the user's test.
        assert "pytest_plugin/handle.py" not in result.stdout.str()

    def test_message_that_was_sent_twice_fails(self, run_project: Run) -> None:
        result = run_project("""
def test_it(sandbox):
    send(sandbox, "+2348031234567")
    send(sandbox, "+2348031234567", text="Again")
    sandbox.sms_to("08031234567")
""")
        result.stdout.fnmatch_lines(
            [
                "E * 2 SMS to 2348031234567 ('08031234567'), not one:",
                "E * 'Hello'",
                "E * 'Again'",
                "E * If that is right, look through the list sandbox.sms.",
            ]
        )

    def test_nothing_sent_names_rejected_requests(self, run_project: Run) -> None:
        result = run_project("""
def test_it(sandbox):
    sandbox.fault("error_500", "send_sms")
    with pytest.raises(Exception):
        send(sandbox, "+2348031234567")
    sandbox.sms_to("+2348031234567")
""")
        result.stdout.fnmatch_lines(
            ["E * The sandbox accepted none.", "E * Requests of send_sms: 1 received, 1 rejected."]
        )

    def test_national_number_without_a_region_names_the_option(self, run_project: Run) -> None:
        result = run_project("def test_it(sandbox):\n    sandbox.sms_to('0803 123 4567')\n", "")
        result.stdout.fnmatch_lines(["E * '0803 123 4567' cannot be read as a phone number.*Set cpaas_region = NG*"])

    @pytest.mark.parametrize(
        ("call", "reason"),
        [
            ("fault('timeout')", "*kind: must be one of *latency*"),
            ("fault('latency', 'send_fax')", "*operation: must be one of *send_sms*"),
            ("set_outcomes(sms={'08031234567': 'lost'})", "*must be one of delivered, undelivered, clicked*"),
            ("set(otp_max_attempts='many')", "*otp_max_attempts*"),
        ],
    )
    def test_mistake_in_a_call_fails_with_what_is_allowed(self, run_project: Run, call: str, reason: str) -> None:
        result = run_project(f"def test_it(sandbox):\n    sandbox.{call}\n")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f"E * The sandbox refused {reason}"])


class TestBehaviour:
    def test_faults_occur_and_end(self, run_project: Run) -> None:
        run_project("""
from cpaas_provider.api import CpaasError, CpaasUnknownOutcomeError

def test_once(sandbox):
    sandbox.fault("unavailable", "send_sms", times=1, retry_after=0)
    send(sandbox, "+2348031234567")
    assert sandbox.sms_to("08031234567").text == "Hello"
    assert sandbox.counters()["requests"]["send_sms"] == 2

def test_cut_after(sandbox):
    sandbox.fault("cut_after", "send_sms")
    with pytest.raises(CpaasUnknownOutcomeError):
        send(sandbox, "+2348031234567")
    sandbox.clear_faults()
    send(sandbox, "+2348030000001")
    assert [message.recipient for message in sandbox.sms] == ["2348031234567", "2348030000001"]

def test_timeout(sandbox):
    sandbox.fault("stall_body", "send_sms")
    with client(sandbox, timeout=0.2) as service, pytest.raises(CpaasUnknownOutcomeError):
        service.send_sms(["+2348031234567"], content="Hello", sender_id="Example")

def test_rejected(sandbox):
    sandbox.reject("0803 123 4567")
    with pytest.raises(CpaasError):
        send(sandbox, "+2348031234567")

def test_rejected_address_in_capitals(sandbox):
    sandbox.reject("Ada@Example.com")
    with client(sandbox) as service, pytest.raises(CpaasError):
        service.send_email(["ada@example.com"], subject="News", content="Hello", sender_id="a@example.com")

def test_outcome_of_an_address_in_capitals(sandbox):
    sandbox.set_outcomes(email={"Ada@Example.com": "bounced"})
    with client(sandbox) as service:
        service.send_email(["ada@example.com"], subject="News", content="Hello", sender_id="a@example.com")
    assert sandbox.email_to("ada@example.com").status == "bounced"

def test_balance(sandbox):
    sandbox.set_balance(0)
    with pytest.raises(CpaasError):
        send(sandbox, "+2348031234567")

def test_lookup(sandbox):
    sandbox.set_lookup("0803 123 4567", dnd=True)
    with client(sandbox) as service:
        assert service.lookup_phone("+2348031234567").dnd
""").assert_outcomes(passed=8)

    def test_clock_moves_the_expiry_of_a_passcode(self, run_project: Run) -> None:
        run_project("""
import datetime as dt

def test_advance(sandbox):
    with client(sandbox) as service:
        service.request_otp("+2348031234567", expires_in=10)
    sandbox.clock.advance(minutes=9)
    assert sandbox.otp_to("08031234567").status == "SENT"
    sandbox.clock.advance(minutes=1)
    assert sandbox.otp_to("08031234567").status == "EXPIRED"

def test_set_and_freeze(sandbox):
    moment = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    sandbox.clock.freeze()
    assert sandbox.clock.set(moment) == sandbox.clock.now() == moment
    send(sandbox, "+2348031234567")
    assert sandbox.sms_to("08031234567").created == moment
    with pytest.raises(SandboxError, match="UTC offset"):
        sandbox.clock.set(dt.datetime(2026, 3, 1))
""").assert_outcomes(passed=2)

    def test_code_is_wrong_only_by_the_services_404(self, run_project: Run) -> None:
        run_project("""
@pytest.fixture
def otp(sandbox):
    with client(sandbox) as service:
        service.request_otp("+2348031234567")
    return sandbox.otp_to("08031234567")

def test_fault(sandbox, otp):
    sandbox.fault("error_500", "verify_otp", times=1)
    with pytest.raises(SandboxError, match="POST /otp/verify: HTTP 500"):
        otp.verify()
    assert otp.verify()

def test_raw_key(sandbox, otp):
    sandbox.set(auth_scheme="raw")
    assert otp.verify()
""").assert_outcomes(passed=2)

    def test_report_without_a_callback_url_names_the_fixture(self, run_project: Run) -> None:
        result = run_project("""
def test_it(sandbox):
    send(sandbox, "+2348031234567")
    sandbox.sms_to("08031234567").fail()
""")
        result.stdout.fnmatch_lines(["E * No report can be sent*Request the fixture cpaas_receiver*"])

    @pytest.mark.parametrize(
        ("callback", "settings"),
        [("https://example.com/reports", "{}"), ("http://127.0.0.1:9/reports", "{'report_attempts': 1}")],
        ids=["another-host", "single-attempt"],
    )
    def test_report_that_was_given_up_is_an_error(self, run_project: Run, callback: str, settings: str) -> None:
        run_project(f"""
def test_it(sandbox):
    sandbox.hold_reports()
    sandbox.set(**{settings})
    with client(sandbox) as service:
        service.send_sms(["+2348031234567"], content="Hello", sender_id="Example", callback={callback!r})
    with pytest.raises(SandboxError, match="delivery report"):
        sandbox.sms_to("08031234567").deliver()
""").assert_outcomes(passed=1)


class TestConnection:
    def test_connection_is_set_for_the_test_only(self, run_project: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_CPAAS_DEFAULT", "cpaas://before")
        run_project(
            """
def test_before():
    assert os.environ["AIRFLOW_CONN_CPAAS_DEFAULT"] == "cpaas://before"

def test_during(sandbox):
    connection = json.loads(os.environ["AIRFLOW_CONN_CPAAS_DEFAULT"])
    assert connection["conn_type"] == "cpaas"
    assert (connection["host"], connection["password"]) == (sandbox.url, sandbox.api_key)
    assert connection["extra"] == {"requests_per_second": 1000, "default_region": "NG", "sender_id": "Shop"}

def test_after():
    assert os.environ["AIRFLOW_CONN_CPAAS_DEFAULT"] == "cpaas://before"
""",
            'cpaas_region = NG\ncpaas_extra = {"sender_id": "Shop"}',
        ).assert_outcomes(passed=3)

    def test_id_is_that_of_option_or_marker(self, run_project: Run) -> None:
        run_project(
            """
pytestmark = pytest.mark.cpaas(extra={"timeout": 2, "sender_id": "Module"})

def ids():
    return {name for name in os.environ if name.startswith("AIRFLOW_CONN_")}

def test_option(sandbox):
    assert ids() == {"AIRFLOW_CONN_SHOP"}

@pytest.mark.cpaas(conn_id="other", region="US", extra={"sender_id": "Test"})
def test_marker(sandbox):
    assert ids() == {"AIRFLOW_CONN_OTHER"}
    assert (sandbox.conn_id, sandbox.region) == ("other", "US")
    extra = json.loads(os.environ["AIRFLOW_CONN_OTHER"])["extra"]
    assert extra == {"requests_per_second": 1000, "default_region": "US", "timeout": 2, "sender_id": "Test"}

def test_further_connection(sandbox):
    sandbox.connect("second", sender_id="Second")
    assert ids() == {"AIRFLOW_CONN_SHOP", "AIRFLOW_CONN_SECOND"}
    assert json.loads(os.environ["AIRFLOW_CONN_SECOND"])["extra"]["sender_id"] == "Second"
    assert json.loads(os.environ["AIRFLOW_CONN_SHOP"])["extra"]["sender_id"] == "Module"
    sandbox.connect(sender_id="Changed")
    assert json.loads(os.environ["AIRFLOW_CONN_SHOP"])["extra"]["sender_id"] == "Changed"
""",
            "cpaas_region = NG\ncpaas_conn_id = shop",
        ).assert_outcomes(passed=3)

    @pytest.mark.parametrize(
        ("marker", "ini", "message"),
        [
            ("conn='shop'", "", "*The marker cpaas has no conn: it takes conn_id, region and extra.*"),
            ("'shop'", "", "*The marker cpaas takes arguments by name: conn_id, region and extra.*"),
            ("", "cpaas_extra = sender_id", "*cpaas_extra is not a JSON object*"),
            ("", "cpaas_extra = [1]", "*cpaas_extra is not a JSON object*"),
        ],
    )
    def test_mistake_in_marker_or_option_is_named(self, run_project: Run, marker: str, ini: str, message: str) -> None:
        result = run_project(f"@pytest.mark.cpaas({marker})\ndef test_it(sandbox):\n    pass\n", ini)
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines([message])


class TestIsolation:
    def test_each_test_finds_the_sandbox_as_new(self, run_project: Run) -> None:
        run_project("""
@pytest.mark.parametrize("n", [1, 2])
def test_it(sandbox, n):
    assert sandbox.sms == sandbox.contacts == []
    assert abs(sandbox.clock.now().timestamp() - __import__("time").time()) < 60
    send(sandbox, "+2348031234567")
    sandbox.fault("error_500")
    sandbox.clock.advance(days=1)
    sandbox.seed(rows=[{"columns": {"col_7f3a01": "Ada"}}])
    sandbox.set(otp_max_attempts=1)
""").assert_outcomes(passed=2)

    def test_session_sandbox_is_another_one_and_keeps_its_messages(self, run_project: Run) -> None:
        run_project("""
@pytest.fixture(scope="module")
def sent(cpaas_session_sandbox):
    send(cpaas_session_sandbox, "+2348031234567")
    return cpaas_session_sandbox

def test_one(sent):
    assert sent.sms_to("08031234567").text == "Hello"
    assert json.loads(os.environ["AIRFLOW_CONN_CPAAS_DEFAULT"])["host"] == sent.url

def test_two(sent, sandbox):
    assert sandbox.sms == []
    assert sent.sms_to("08031234567").text == "Hello"
    assert json.loads(os.environ["AIRFLOW_CONN_CPAAS_DEFAULT"])["host"] == sandbox.url != sent.url

def test_three(sent):
    assert json.loads(os.environ["AIRFLOW_CONN_CPAAS_DEFAULT"])["host"] == sent.url
""").assert_outcomes(passed=3)

    def test_port_is_closed_after_the_session(self, run_project: Run, pytester: pytest.Pytester) -> None:
        run_project("def test_it(sandbox):\n    open('url', 'w').write(sandbox.url)\n").assert_outcomes(passed=1)
        port = int((pytester.path / "url").read_text().rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)

    def test_own_fixtures_of_the_same_names_take_precedence(self, run_project: Run) -> None:
        run_project("""
@pytest.fixture
def sandbox():
    return "mine"

@pytest.fixture
def run_dag():
    return "mine"

def test_it(sandbox, run_dag, cpaas_sandbox):
    assert sandbox == run_dag == "mine"
    assert cpaas_sandbox.sms == []
""").assert_outcomes(passed=1)
