"""Each test that the page of promises names is one that pytest collects, and one that can fail."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.promises import PROMISES
from tests.unit.docs import DOCS, ROOT

NAMED = sorted({test for tests in PROMISES.values() for test in tests})


def test_every_test_of_the_page_is_collected() -> None:
    page = (DOCS / "concepts" / "promises.md").read_text(encoding="utf-8")
    named = sorted(set(re.findall(r"`(tests/[^`]+::[^`]+)`", page)))
    assert named == NAMED
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        *named,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    collected = {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}
    assert set(named) - collected == set()


def test_no_promise_rests_on_words_of_the_documentation() -> None:
    assert [test for test in NAMED if test.startswith(("tests/unit/docs/", "tests/unit/test_readme.py"))] == []
