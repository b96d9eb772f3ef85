"""Odd cells, and the one reading that every face has of them, with the default region NG.

A face is a campaign, a single send, a suppression list, a lookup, a sync, a notifier or a command.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any

COMMA = "a comma separates recipients"
QUOTE = "a quoted line break that may be a broken quote makes the row invalid"
LINE = "a line is a recipient"
BLANK = "a blank line is no recipient"
NAME_OF_MEMBER = "Airflow renders such a member as its name, which is refused"
NUMBER = "where numbers and addresses are listed, a value without @ is a number"
CLEARED = "a missing value empties the cell"


class Name(str):
    """A text of a library, which is a subclass."""


class Phone(StrEnum):
    """Numbers as a text enumeration."""

    ADA = "+2348035550101"


class NamedPhone(str, Enum):  # noqa: UP042 - the older way, which is written as its name
    """The same in the older way."""

    ADA = "+2348035550102"


@dataclass(frozen=True)
class Cell:
    """A cell, and what it is read as.

    :param recipient: the digits of the number, or the address; ``None`` if the cell is refused
    :param reason: the beginning of the reason
    :param unlike: the faces for which the cell is another thing, and why
    """

    value: Any
    recipient: str | None = None
    reason: str = ""
    unlike: dict[str, str] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        """Whether a file or a command can have it."""
        return type(self.value) is str

    @property
    def reading(self) -> str:
        """The recipient, or the beginning of the reason."""
        return self.recipient or self.reason


EMPTY = "is empty"
WORD = "is the word "
NO_NUMBER = "is not a phone number"
FOREIGN = "is not a phone number of NG. A number of another country needs a plus before its country code"
NOT_INTERNATIONAL = "is not a phone number in international form"
SEVERAL = "is followed by a second number or an extension"
TWO = "can be read as two phone numbers"
LETTERS = "contains letters"
CHARACTER = "is not a phone number: it contains a character that no phone number has"
WRONG_TYPE = "must be text or a whole number"
LOST = "lost its last digits in a spreadsheet"
LONG = "is too long for a phone number"
NO_TEXT = "must be text"
NO_ADDRESS = "is not an email address"

_TEMPLATED = ("campaign", "send", "suppression_list", "lookup", "sync", "notifier")
_RENDERED = dict.fromkeys(_TEMPLATED, NAME_OF_MEMBER)
_MISSING = {"sync": CLEARED}
_MIXED = dict.fromkeys(("stored_list", "import"), NUMBER)
_BLANK_TEXT = {**_MISSING, "command": BLANK}

READABLE = [
    Cell("+2348035550001", "2348035550001"),
    Cell("2348035550002", "2348035550002"),
    Cell("08035550003", "2348035550003"),
    Cell("8035550004", "2348035550004"),
    Cell("0803 555 0005", "2348035550005"),
    Cell("(0803) 555-0006", "2348035550006"),
    Cell("0803.555.0007", "2348035550007"),
    Cell("0803/5550008", "2348035550008"),
    Cell("+234 (0)803 555 0009", "2348035550009"),
    Cell("(+234) 803 555 0010", "2348035550010"),
    Cell("00234 803 555 0011", "2348035550011"),
    Cell("009 234 803 555 0012", "2348035550012"),
    Cell("+44 20 7946 0018", "442079460018"),
    Cell("0044 20 7946 0019", "442079460019"),
    Cell("+34 (0)612 345 678", "34612345678"),
    Cell("0803\u30fc555\u30fc0033", "2348035550033"),
    Cell("009 1 202 555 0123", "12025550123"),
    Cell("+1-202-555-0124", "12025550124"),
    Cell("tel:+2348035550013", "2348035550013"),
    Cell("sms:08035550014", "2348035550014"),
    Cell("WhatsApp:+2348035550015", "2348035550015"),
    Cell("p:+2348035550016", "2348035550016"),
    Cell("'08035550017", "2348035550017"),
    Cell("2348035550018.0", "2348035550018"),
    Cell("\u202a+2348035550019\u202c", "2348035550019"),
    Cell("\u00a00803\u00a0555\u20110020\u00a0", "2348035550020"),
    Cell("\uff0b\uff12\uff13\uff14\uff18\uff10\uff13\uff15\uff15\uff15\uff10\uff10\uff12\uff11", "2348035550021"),
    Cell("\u0660\u0668\u0660\u0663\u0665\u0665\u0665\u0660\u0660\u0662\u0662", "2348035550022"),
    Cell("\ufeff08035550023\t", "2348035550023"),
    Cell("0803\u200b5550024", "2348035550024"),
    Cell(2348035550025, "2348035550025"),
    Cell(8035550026, "2348035550026"),
    Cell(2348035550027.0, "2348035550027"),
    Cell(8035550028.0, "2348035550028"),
    Cell(Decimal(2348035550029), "2348035550029"),
    Cell(Decimal("8035550030.00"), "2348035550030"),
    Cell(Decimal("2.348035550031E+12"), "2348035550031"),
    Cell(Name("08035550032"), "2348035550032"),
    Cell(Phone.ADA, "2348035550101"),
    Cell(NamedPhone.ADA, "2348035550102", unlike=_RENDERED),
]

REFUSED = [
    Cell(None, reason=EMPTY, unlike=_MISSING),
    Cell(float("nan"), reason=EMPTY, unlike=_MISSING),
    Cell(Decimal("NaN"), reason=EMPTY, unlike=_MISSING),
    Cell(Decimal("sNaN"), reason=EMPTY, unlike=_MISSING),
    Cell("", reason=EMPTY, unlike=_BLANK_TEXT),
    Cell(" \t\u00a0", reason=EMPTY, unlike=_BLANK_TEXT),
    Cell("\u200b\u200e\ufeff", reason=EMPTY, unlike=_MISSING),
    Cell(Name(" "), reason=EMPTY, unlike=_MISSING),
    Cell("'", reason=EMPTY),
    Cell("None", reason=WORD),
    Cell("none", reason=WORD),
    Cell("nan", reason=WORD),
    Cell(" NaN ", reason=WORD),
    Cell("NaT", reason=WORD),
    Cell("<NA>", reason=WORD),
    Cell("null", reason=WORD),
    Cell(Name("None"), reason=WORD),
    Cell("N/A", reason=LETTERS),
    Cell("#REF!", reason=LETTERS),
    Cell("-", reason=NO_NUMBER),
    Cell("+", reason=NO_NUMBER),
    Cell("++2348035550001", reason=NO_NUMBER),
    Cell("112", reason=FOREIGN),
    Cell("0", reason=FOREIGN),
    Cell("442079460018", reason=FOREIGN),
    Cell("12025550123", reason=FOREIGN),
    Cell(442079460018, reason=FOREIGN),
    Cell(442079460018.0, reason=FOREIGN),
    Cell("0803555000", reason=FOREIGN),
    Cell("080355500012", reason=FOREIGN),
    Cell("+234803555000", reason=NOT_INTERNATIONAL),
    Cell("+23480355500012", reason=NOT_INTERNATIONAL),
    Cell("+2340000000000", reason=NOT_INTERNATIONAL),
    Cell("+15550123456", reason=NOT_INTERNATIONAL),
    Cell("0044 20 7946", reason=NOT_INTERNATIONAL),
    Cell("+39 (0)331 123456", reason=TWO),
    Cell("08035550001 ext. 5", reason=SEVERAL),
    Cell("+2348035550001x5", reason=SEVERAL),
    Cell("08035550001#5", reason=SEVERAL),
    Cell("tel:+234-803-555-0001;ext=5", reason=SEVERAL),
    Cell("08035550001/08035550002", reason=SEVERAL),
    Cell("08035550001 08035550002", reason=SEVERAL),
    Cell("08035550001;08035550002", reason=SEVERAL),
    Cell("08035550001 or 08035550002", reason=SEVERAL),
    Cell("08035550001,08035550002", reason=SEVERAL, unlike={"command": COMMA}),
    Cell("08035550001\n08035550002", reason=SEVERAL, unlike={"command": LINE, "import": QUOTE}),
    Cell("08035550001 (Ada)", reason=LETTERS),
    Cell("Ada 08035550001", reason=LETTERS),
    Cell("O803 555 0001", reason=LETTERS),
    Cell("0803 abc 0001", reason=LETTERS),
    Cell("ada at example.com", reason=LETTERS),
    Cell("0803*5550001", reason=CHARACTER),
    Cell("2.348E+12", reason=LOST),
    Cell("2,348E+12", reason=LOST, unlike={"command": COMMA}),
    Cell("1" * 101, reason=LONG),
    Cell(-2348035550001, reason=NO_NUMBER),
    Cell(10**30, reason=NO_NUMBER),
    Cell(8035550001.5, reason=WRONG_TYPE),
    Cell(float("inf"), reason=WRONG_TYPE),
    Cell(Decimal("Infinity"), reason=WRONG_TYPE),
    Cell(Decimal("8035550001.5"), reason=WRONG_TYPE),
    Cell(True, reason=WRONG_TYPE),
    Cell(False, reason=WRONG_TYPE),
    Cell(b"+2348035550001", reason=WRONG_TYPE),
    Cell(["+2348035550001"], reason=WRONG_TYPE),
    Cell(("+2348035550001",), reason=WRONG_TYPE),
    Cell({"phone": "+2348035550001"}, reason=WRONG_TYPE),
    Cell(date(2026, 1, 2), reason=WRONG_TYPE),
    Cell(3 + 0j, reason=WRONG_TYPE),
]


NUMBERS = [*READABLE, *REFUSED]

ADDRESSES = [
    Cell("ada@example.com", "ada@example.com"),
    Cell(" Ada.B@Example.COM\u200b", "Ada.B@example.com"),
    Cell("ada@m\u00fcller.de", "ada@xn--mller-kva.de"),
    Cell("ada@b\u00fccher.example.com", "ada@xn--bcher-kva.example.com"),
    Cell("ada+news@example.com", "ada+news@example.com"),
    Cell(f"{'a' * 64}@example.com", f"{'a' * 64}@example.com"),
    Cell(Name("ben@example.com"), "ben@example.com"),
    Cell(f"{'a' * 65}@example.com", reason=NO_ADDRESS),
    Cell("ada@example", reason=NO_ADDRESS),
    Cell("ada@", reason=NO_ADDRESS),
    Cell("ada", reason=NO_ADDRESS, unlike=_MIXED),
    Cell("Ada <ada@example.com>", reason=NO_ADDRESS),
    Cell("ada@example.com;ben@example.com", reason=NO_ADDRESS),
    Cell("ada@example.com, ben@example.com", reason=NO_ADDRESS, unlike={"command": COMMA}),
    Cell("nan", reason=WORD),
    Cell("\u200b", reason=EMPTY, unlike=_MISSING),
    Cell(None, reason=EMPTY, unlike=_MISSING),
    Cell(float("nan"), reason=EMPTY, unlike=_MISSING),
    Cell(4711, reason=NO_TEXT, unlike=_MIXED),
    Cell(b"ada@example.com", reason=NO_TEXT),
]


def cells_of(face: str, cells: list[Cell], *, text_only: bool = False) -> list[Cell]:
    """Return the cells that a face reads as the table has it.

    :param text_only: whether the face has only text
    """
    return [cell for cell in cells if face not in cell.unlike and (cell.is_text or not text_only)]
