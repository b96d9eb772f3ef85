"""What README and the pages show works: programs compile, commands parse, data is data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.docs import PAGES, PROJECT, README, named
from tests.unit.docs.blocks import CHECKS, SHOWN_ONLY, blocks_of, check_bash, check_python


@pytest.mark.parametrize("page", [README, *PROJECT, *PAGES], ids=named)
def test_every_block_of_a_page_is_of_its_language(page: Path) -> None:
    faults = []
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if block.language in SHOWN_ONLY:
            continue
        if block.language not in CHECKS:
            faults.append(f"line {block.line}: a block needs a language; {block.language!r} is none that is checked")
            continue
        try:
            CHECKS[block.language](block.text)
        except Exception as error:  # noqa: BLE001 - whatever a parser raises
            faults.append(f"line {block.line}: {type(error).__name__}: {error}")
    assert faults == []


@pytest.mark.parametrize(
    "text",
    [
        "from cpaas_provider.operators import SendPigeonOperator",
        "SendSmsOperator(task_id='a', recipients='1', contents='x')",
        "SendSmsOperator.partial(task_id='a', contents='x').expand(recipients=[])",
        "CsvSource('a.csv', separator=';')",
        "client.send_pigeon('a')",
        "client.send_sms('1', sender='x')",
        "idempotent.send_pigeon('a')",
        "idempotent.send_sms('1', sender='x')",
        "OtpStatusSensor(task_id='a', otp_id='1', patience=3)",
        "CpaasClient('https://a', 'key', pigeons=1)",
        "on_campaign_finished(pigeons=True)",
        "def broken(:",
    ],
)
def test_program_that_cannot_work_is_found(text: str) -> None:
    with pytest.raises((AssertionError, SyntaxError)):
        check_python(text)


def test_program_that_works_passes() -> None:
    check_python(
        "from cpaas_provider.hooks.cpaas import CpaasHook\n"
        "SendSmsOperator(task_id='a', recipients='1', content='x', retries=3, allow_backfill=True) >> other\n"
        "OtpStatusSensor(task_id='b', otp_id='1', mode='reschedule', deferrable=True)\n"
        "with CpaasHook('c').get_conn() as client:\n    client.send_sms('1', sender_id='x', content='y')\n"
        "await something()\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "airflow cpaas pong",
        "airflow cpaas receiver --pigeons 3",
        "export A=1 && airflow cpaas journal lost",
        "cat list | airflow cpaas ping a b",
        "cpaas-sandbox --api-key k",
        "AIRFLOW_HOME=/tmp make pigeons",
        "airflow pigeons list",
        "if true; then",
    ],
)
def test_command_that_cannot_work_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        check_bash(text)


def test_command_that_works_passes() -> None:
    check_bash(
        "# it's a comment\nexport A='1' B=2\ncpaas-sandbox --port 8025 \\\n  --api-key sandbox-key &\n"
        "airflow cpaas ping\nmake test ARGS='-k sms'   # narrowed\n"
        "AIRFLOW__CORE__X=1 airflow connections add a --conn-type cpaas > file\n"
    )
