"""Mutation tests: changes the code in one line at a time, and names the changes that no test notices.

Each mutant is made in a copy of the tree, and meets the tests of its file there: first those nearest to it, then those
of its room. ``make mutants`` runs it. mutmut runs tests in threads and forks of one process and follows no program that
a test starts. Cosmic Ray changes the tree itself and runs the same tests for every file. Hence a tool of our own.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from tests.mutants.changes import Mutant, is_python, mutants_of

ROOT = Path(__file__).parents[2]
PACKAGE = "provider/cpaas_provider/"

TESTS = {
    "sending/campaign/": ("tests/unit/sending/campaign", "tests/airflow/campaigns", "tests/unit/sending"),
    "sending/journal/": ("tests/unit/sending", "tests/airflow/journal", "tests/airflow/cli/test_journal.py"),
    "sending/": ("tests/unit/sending", "tests/airflow/journal", "tests/airflow/campaigns", "tests/airflow/operators"),
    "api/responses/": ("tests/unit/api", "tests/contract"),
    "delivery/tracking/": ("tests/unit/delivery", "tests/unit/triggers/test_delivery.py", "tests/airflow/delivery"),
    "contacts/": ("tests/unit/contacts", "tests/airflow/contacts", "tests/airflow/cli"),
    "database/leases.py": ("tests/unit/database", "tests/unit/contacts", "tests/airflow/campaigns/test_keys.py"),
    "hooks/_rate_limit/reservations.py": ("tests/unit/database", "tests/unit/hooks", "tests/airflow/campaigns"),
    "database/recipients/": ("tests/unit/database", "tests/airflow/campaigns", "tests/airflow/operators"),
}
"""What is changed, and the tests that shall notice it."""

_FAST = "not slow and not system"
_NO_TESTS = 5
"""The exit code of pytest if none of the tests is fast."""


def steps_of(path: str) -> list[list[str]]:
    """Return the tests of a file in two steps: those nearest to it, and those of its room."""
    inner = path.removeprefix(PACKAGE)
    room = next(tests for prefix, tests in TESTS.items() if inner.startswith(prefix))
    folder = ROOT / "tests" / "unit" / Path(inner).parent
    near = [*sorted(folder.glob(f"test_{Path(inner).stem}*.py")), *([folder] if folder.is_dir() else [])]
    steps = [[test.relative_to(ROOT).as_posix() for test in near], list(room)]
    return [step for step in steps if step]


def changed_lines(revision: str) -> set[tuple[str, int]]:
    """Return the lines that differ from a revision, with their files."""
    lines, path = set[tuple[str, int]](), ""
    for line in _git("diff", "-U0", "--no-color", "--no-ext-diff", revision, "--", PACKAGE).splitlines():
        if line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines.update((path, number) for number in range(first, first + count))
    return lines


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


class Runner:
    """Runs tests against mutants in a copy of the tree.

    :param copy: a new folder, which holds the tree and whatever the tests write
    :param limit: seconds that one run of tests may take
    """

    def __init__(self, copy: Path, limit: float) -> None:
        self._copy, self._limit = copy, limit
        self._sound = set[str]()
        (copy / "tmp").mkdir()
        for name in _git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
            if name and (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)

    def judge(self, mutant: Mutant) -> tuple[str, str]:
        """Return a verdict, and the test that failed.

        ``survived``, ``killed``, ``timed out``, or ``undecided``: the test fails without the mutant, too.
        """
        file = self._copy / mutant.path
        source = file.read_bytes()
        self._write(file, mutant.apply(source))
        verdict, test = "survived", ""
        for tests in steps_of(mutant.path):
            code, failed = self._run(tests)
            if code not in (0, _NO_TESTS):
                verdict, test = ("timed out" if code is None else "killed"), failed or tests[0]
                break
        self._write(file, source)
        if verdict == "killed" and test not in self._sound:
            if self._run([test])[0] != 0:
                return "undecided", test
            self._sound.add(test)
        return verdict, test

    def _write(self, file: Path, source: bytes) -> None:
        file.write_bytes(source)
        # Python takes a compiled file for current whose source has the same size and second.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()

    def _run(self, tests: Sequence[str]) -> tuple[int | None, str]:
        """Return the exit code of a run of tests, ``None`` if it took too long, and the first test that failed."""
        copy = self._copy
        command = [sys.executable, "-m", "pytest", *["-q", "-x", "-p", "no:cacheprovider"], "-m", _FAST]
        environment = os.environ | {"PYTHONPATH": f"{copy / 'provider'}:{copy}", "TMPDIR": str(copy / "tmp")}
        output = copy / "output"
        with output.open("wb") as file:
            process = psutil.Popen(
                [*command, *tests],
                cwd=copy,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
            try:
                code = process.wait(self._limit)
            except psutil.TimeoutExpired:
                code = None
            finally:
                _end(process)
        failed = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", output.read_text(errors="replace"), re.MULTILINE)
        return code, failed[1] if failed else ""


def _end(process: psutil.Popen) -> None:
    """End what still runs of a test run: it first has the time to end its programs."""
    if not process.is_running():
        return
    programs = [process, *process.children(recursive=True)]
    process.send_signal(signal.SIGINT)
    for program in psutil.wait_procs(programs, timeout=10)[1]:
        program.kill()


def _select(arguments: argparse.Namespace) -> Iterator[Mutant]:
    changed = changed_lines(arguments.changed) if arguments.changed else None
    for file in sorted((ROOT / PACKAGE).rglob("*.py")):
        path = file.relative_to(ROOT).as_posix()
        if not path.removeprefix(PACKAGE).startswith(tuple(TESTS)):
            continue
        if arguments.files and not any(part in path for part in arguments.files):
            continue
        if changed is None or any(path == changed_path for changed_path, _ in changed):
            mutants = mutants_of(path, file.read_bytes())
            yield from (mutant for mutant in mutants if changed is None or (path, mutant.line) in changed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.splitlines()[0])  # type: ignore[union-attr]  # it is above
    parser.add_argument("--files", nargs="+", metavar="PART", help="only files with one of these in their path")
    parser.add_argument("--changed", metavar="REV", help="only lines that differ from this revision")
    parser.add_argument("--most", type=int, default=50, metavar="N", help="the most mutants to run (50)")
    parser.add_argument("--seed", type=int, default=0, help="draws another sample (0)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no mutant after these")
    parser.add_argument("--limit", type=float, default=600, help="seconds that one run of tests may take (600)")
    parser.add_argument("--list", action="store_true", help="show the mutants and run no test")
    arguments = parser.parse_args()
    mutants = list(_select(arguments))
    random.Random(arguments.seed).shuffle(mutants)
    valid = (mutant for mutant in mutants if is_python(mutant.apply((ROOT / mutant.path).read_bytes())))
    chosen = list(itertools.islice(valid, arguments.most))
    print(f"{len(chosen)} of {len(mutants)} mutants, seed {arguments.seed}", flush=True)
    if arguments.list:
        for mutant in chosen:
            print(f"\n{mutant.path}:{mutant.line}\n{mutant.diff((ROOT / mutant.path).read_bytes())}")
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    deadline = time.monotonic() + 60 * arguments.minutes
    verdicts = Counter[str]()
    with (
        tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder,
        contextlib.suppress(KeyboardInterrupt),
    ):
        runner = Runner(Path(folder), arguments.limit)
        for mutant in chosen:
            if time.monotonic() > deadline:
                break
            verdict, test = runner.judge(mutant)
            verdicts[verdict] += 1
            print(f"{verdict}  {mutant.path}:{mutant.line}  {test}", flush=True)
            if verdict == "survived":
                print(mutant.diff((ROOT / mutant.path).read_bytes()), flush=True)
    killed = verdicts["killed"] + verdicts["timed out"]
    decided = killed + verdicts["survived"]
    print(f"\n{killed} of {decided} mutants were killed ({100 * killed / max(1, decided):.0f} %). {dict(verdicts)}")


if __name__ == "__main__":
    main()
