"""Look through all that an Airflow wrote for what it must not hold: keys, codes, numbers, addresses, texts.

Looked through are the files of its home (logs first of all), every table of its metadata database, and the arguments
of its triggers in clear. Left out is where an author's own words stand as he wrote them: his DAGs, and the conf he
triggered a run with.
"""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.sandbox import Sandbox
from tests.system.demo_figures import everything_in

if TYPE_CHECKING:
    from sqlalchemy import Connection

# A DAG's source and its serialized form hold the texts and numbers its author wrote into it; the audit log repeats the
# requests of people, and so the conf they triggered a run with.
AUTHORS_OWN = {("dag_code", "source_code"), ("serialized_dag", "data"), ("dag_run", "conf"), ("log", "extra")}
# The password file is how one logs in; the others hold no text of ours.
NOT_SEARCHED = {"airflow.db", "airflow.db-shm", "airflow.db-wal", "simple_auth_manager_passwords.json.generated"}

_TELLING_DIGITS = 9  # the last digits of a number by which it is known however it is written
_SHORTEST_TEXT = 20
_NUMBER = re.compile(r"\+?\(?\d[\d\s().\-]{6,22}\d")
_DIGITS = re.compile(r"(?<![\w.:-])\d{4,8}(?![\w:-]|\.\d)")
_ADDRESS = re.compile(r"[^\s\"'<>,;:()\[\]{}=\\]+@[\w.\-]+\w")


class Leak(NamedTuple):
    """Something found where it must not be. Shows what kind of thing, not the thing."""

    place: str
    kind: str
    context: str


@dataclass
class Secrets:
    """What must not be found."""

    keys: set[str] = field(default_factory=set)
    codes: set[str] = field(default_factory=set)
    numbers: set[str] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, sandbox: Sandbox) -> Secrets:
        """Return everything that a sandbox was ever sent or sent out."""
        found = cls(keys={sandbox.api_key})
        for box in ("sms", "email", "otp", "airtime", "lookups"):
            for item in everything_in(sandbox, box):
                recipient = item["recipient"]
                (found.addresses if "@" in recipient else found.numbers).add(recipient)
                found.add_text(item.get("text") or "")
                found.add_text(item.get("subject") or "")
                if "code" in item:
                    found.codes.add(item["code"])
        for row in everything_in(sandbox, "contacts"):
            cells = [cell for cell in row["columns"].values() if isinstance(cell, str)]
            found.addresses.update(cell for cell in cells if "@" in cell)
        return found

    def add_text(self, text: str) -> None:
        """Add a message, line by line, because a log may break it anywhere between."""
        for line in text.splitlines():
            if len(line.strip()) >= _SHORTEST_TEXT:
                self.texts |= _ways_to_write(line.strip())

    def add_list(self, file: Path) -> None:
        """Add the numbers and addresses of a customer list, whatever became of them."""
        with file.open(encoding="utf-8-sig", newline="") as lines:
            for row in csv.DictReader(lines):
                digits = re.sub(r"\D", "", (row["phone"] or "").removesuffix(".0"))
                if len(digits) > _TELLING_DIGITS:
                    self.numbers.add(digits)
                if "@" in (row["email"] or ""):
                    self.addresses.add(row["email"].strip())


def _ways_to_write(text: str) -> set[str]:
    return {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}


class Scan:
    """Searches text for secrets, with what makes that quick prepared once."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._tails = {number[-_TELLING_DIGITS:] for number in secrets.numbers}
        self._addresses = {address.casefold() for address in secrets.addresses}
        self.searched = 0

    def text(self, place: str, text: str) -> Iterator[Leak]:
        """Yield what a text holds."""
        self.searched += len(text)
        for kind, literals in (("key", self._secrets.keys), ("text", self._secrets.texts)):
            for literal in literals:
                if (at := text.find(literal)) >= 0:
                    yield self._leak(place, kind, text, at, at + len(literal))
        for match in _NUMBER.finditer(text):
            digits = re.sub(r"\D", "", match[0].removesuffix(".0"))
            if digits[-_TELLING_DIGITS:] in self._tails:
                yield self._leak(place, "number", text, *match.span())
        for match in _ADDRESS.finditer(text):
            if match[0].casefold() in self._addresses:
                yield self._leak(place, "address", text, *match.span())
        for match in _DIGITS.finditer(text):
            if match[0] in self._secrets.codes:
                yield self._leak(place, "code", text, *match.span())

    def _leak(self, place: str, kind: str, text: str, start: int, end: int) -> Leak:
        return Leak(place, kind, f"{text[max(0, start - 60) : start]}<{kind}>{text[end : end + 40]}")

    def files(self, home: Path) -> Iterator[Leak]:
        """Yield what the files of an Airflow home hold."""
        for file in sorted(home.rglob("*")):
            if file.is_file() and file.name not in NOT_SEARCHED and "__pycache__" not in file.parts:
                yield from self.text(str(file.relative_to(home)), file.read_text(errors="replace"))

    def database(self, file: Path, fernet_key: str) -> Iterator[Leak]:
        """Yield what the metadata database holds; what is encrypted in triggers is searched in clear."""
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in tables:
                cursor = database.execute(f'SELECT * FROM "{table}"')
                columns = [column[0] for column in cursor.description]
                for row in cursor:
                    for column, value in zip(columns, row, strict=True):
                        if (table, column) not in AUTHORS_OWN:
                            yield from self._cell(f"{table}.{column}", value, fernet_key)

    def provider_database(self, connection: Connection) -> Iterator[Leak]:
        """Yield what the provider's database holds, in every column of every table."""
        from sqlalchemy import select

        from cpaas_provider.database.schema.all_tables import metadata

        for table in metadata.sorted_tables:
            for row in connection.execute(select(table)).mappings():
                for column, value in row.items():
                    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
                    yield from self.text(f"{table.name}.{column}", text)

    def _cell(self, place: str, value: Any, fernet_key: str) -> Iterator[Leak]:
        if not isinstance(value, (str, bytes)):
            return
        text = value if isinstance(value, str) else value.decode(errors="replace")
        if text.startswith("gAAAA"):
            from cryptography.fernet import Fernet

            text = Fernet(fernet_key).decrypt(text).decode()
        yield from self.text(place, text)


def look_through(home: Path, fernet_key: str, secrets: Secrets) -> tuple[list[Leak], int]:
    """Return what was found, one of a kind a place, and how many characters were searched."""
    scan = Scan(secrets)
    found: Iterable[Leak] = [*scan.files(home), *scan.database(home / "airflow.db", fernet_key)]
    return list({(leak.place, leak.kind): leak for leak in found}.values()), scan.searched
