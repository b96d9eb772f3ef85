"""Searches SQLite's files for deleted data.

A separate process searches them. A process that opens and closes a database file loses the locks that SQLite holds on
that file.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_PIECE = 1 << 20
_OVERLAP = 1 << 10
"""Bytes that consecutive pieces share, so that a match at their border is found. No match is longer."""

_NONE, _FOUND = 10, 11
_HOME = Path(__file__).parents[3]


def contains_match(path: Path, pattern: bytes) -> bool:
    """Return whether a pattern matches anywhere in a database file or its write-ahead log, including free space.

    :param pattern: a regular expression for bytes, case-insensitive, whose matches have 1 KiB at most
    :raises OSError: when the files cannot be searched
    """
    code = f"import sys; sys.path.append({str(_HOME)!r}); from {__name__} import look; sys.exit(look(sys.argv[1:]))"
    files = [str(path), f"{path}-wal"]
    done = subprocess.run(  # noqa: S603 - a program of ours, with the paths of our database
        [sys.executable, "-I", "-c", code, *files], input=pattern, capture_output=True, check=False
    )
    if done.returncode not in (_NONE, _FOUND):
        raise OSError(f"{path.name} could not be searched for deleted data")
    return done.returncode == _FOUND


def look(paths: Iterable[str]) -> int:
    """Search files for the pattern on standard input. Missing files are skipped."""
    pattern = re.compile(sys.stdin.buffer.read(), re.IGNORECASE)
    files = [path for path in map(Path, paths) if path.exists()]
    return _FOUND if any(_contains(path, pattern) for path in files) else _NONE


def _contains(path: Path, pattern: re.Pattern[bytes]) -> bool:
    with path.open("rb") as file:
        rest = b""
        while piece := file.read(_PIECE):
            if pattern.search(rest + piece):
                return True
            rest = piece[-_OVERLAP:]
    return False
