"""Whether SQLite's files still hold what was deleted.

Looked for by a program of its own: a process that opens and closes a database's file drops the locks that SQLite has on
it for that process.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_PIECE = 1 << 20
_OVERLAP = 1 << 10
"""Bytes of a piece that are looked at once more with the next; nothing looked for is longer."""

_NONE, _FOUND = 10, 11
_HOME = Path(__file__).parents[3]


def contains_match(path: Path, pattern: bytes) -> bool:
    """Tell whether a database or its write-ahead log matches a pattern anywhere, free space included.

    :param pattern: a regular expression for bytes, whatever the case of letters; matches are of 1 KiB at most
    :raises OSError: when that cannot be found out
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
    """Look through files for the pattern on standard input; one that is not there holds nothing."""
    pattern = re.compile(sys.stdin.buffer.read(), re.IGNORECASE)
    there = [path for path in map(Path, paths) if path.exists()]
    return _FOUND if any(_holds(path, pattern) for path in there) else _NONE


def _holds(path: Path, pattern: re.Pattern[bytes]) -> bool:
    with path.open("rb") as file:
        rest = b""
        while piece := file.read(_PIECE):
            if pattern.search(rest + piece):
                return True
            rest = piece[-_OVERLAP:]
    return False
