"""Make ``customers.csv``: a customer list like a shop's export, with the faults that such lists have.

``few_customers.csv`` has its first rows. The built package has it in the place of the other, which is large.

The same seed always makes the same bytes, so a test can compare the file beside this program with its output.

No customer is real. Addresses end in the domains reserved for examples. British and American numbers come from the
ranges reserved for fiction. Nigerian and Ghanaian numbers only look like those of a network.

    python make_customers.py [FILE [FEW_FILE]]
"""

from __future__ import annotations

import csv
import io
import random
import sys
from collections.abc import Callable
from pathlib import Path

SEED = 20261121
GOOD_ROWS = 1120
FEW_ROWS = 25
HEADER = ("customer_id", "name", "phone", "email", "country", "birthday", "plan", "points", "tags", "note")


def _words(text: str) -> list[str]:
    return text.split()


_FIRST = _words(
    "Ada Adébáyọ̀ Aisha Amina Bolanle Chidi Chinwe Damilola Ebele Emeka Fatima Folake Funmi Halima Ifeoma Ìbùkún "
    "Kelechi Kunle Musa Ngozi Nneka Obinna Olúwaṣeun Rótìmí Sade Simi Tunde Uche Yusuf Zainab Kwame Akosua Kofi Abena "
    "Esi Yaw Grace Oliver James Sophie Zoë Renée Søren Łukasz José"
)
_LAST = _words(
    "Adeyemi Okafor Balogun Eze Ìdòwú Nwosu Bello Ọbáfẹ́mi Danjuma Okonkwo Abubakar Ogunleye Uzor Lawal Chukwu "
    "Mensah Owusu Boateng O'Brien D'Souza Smith-Jones Taylor Brown Wilson Garcia Nguyen Müller"
)
_ELSEWHERE = ("李小龍", "محمد الأمين", "Мария Иванова", "山田 太郎", "فاطمة الزهراء", "Νίκος Παπαδόπουλος", "김민수")
_NOTES = (
    "",
    "",
    "",
    "prefers mornings",
    "asked for a call, not urgent",
    'calls herself "the boss"',
    "gate code on file\nring twice",
    "pays cash; big orders",
    "naïve question about café opening hours",
)
_NIGERIAN = _words("703 705 706 802 803 805 806 807 808 809 810 811 812 813 814 815 816 817 818 902 903 905 909")
_PLANS = ("basic", "plus", "family", "business")
_TAGS = ("new", "vip", "wholesale", "newsletter", "birthday club", "returns")
_DOMAINS = ("example.com", "example.org", "example.net", "mail.example.com")

Row = list[str]


def nigerian(dice: random.Random) -> tuple[str, str, str]:
    """Return one number in one of the forms that customers and spreadsheets use, its region and its bare digits."""
    operator, middle, last = dice.choice(_NIGERIAN), f"{dice.randrange(1000):03}", f"{dice.randrange(10000):04}"
    written: tuple[Callable[[], str], ...] = (
        lambda: f"0{operator}{middle}{last}",
        lambda: f"0{operator} {middle} {last}",
        lambda: f"+234 {operator} {middle} {last}",
        lambda: f"+234{operator}{middle}{last}",
        lambda: f"234{operator}{middle}{last}",
        lambda: f"+234-{operator}-{middle}-{last}",
        lambda: f"00234{operator}{middle}{last}",
        lambda: f"'0{operator}{middle}{last}",
        lambda: f"234{operator}{middle}{last}.0",
        lambda: f"{operator}{middle}{last}",
        lambda: f" (0{operator}) {middle}-{last} ",
    )
    often = (30, 10, 12, 12, 12, 4, 4, 5, 5, 4, 2)
    return dice.choices(written, often)[0](), "NG", f"234{operator}{middle}{last}"


def foreign(dice: random.Random) -> tuple[str, str, str]:
    """Return a British, American or Ghanaian number, national or international."""
    country = dice.choice(("GB", "GB", "US", "GH", "GH"))
    if country == "GB":
        tail = f"{dice.randrange(1000):03}"
        return dice.choice((f"07400 123{tail}", f"+44 7400 123{tail}", f"447400123{tail}")), "GB", f"447400123{tail}"
    if country == "US":
        area, tail = dice.choice(("202", "212", "312", "415")), f"01{dice.randrange(100):02}"
        return dice.choice((f"({area}) 555-{tail}", f"+1 {area}-555-{tail}")), "US", f"1{area}555{tail}"
    middle, last = f"{dice.randrange(1000):03}", f"{dice.randrange(10000):04}"
    return dice.choice((f"024 {middle} {last}", f"+233 24 {middle} {last}")), "GH", f"23324{middle}{last}"


def customer(dice: random.Random, taken: set[str]) -> Row:
    """Return a row with at least a valid and new number."""
    while True:
        phone, region, digits = foreign(dice) if dice.random() < 0.07 else nigerian(dice)
        if digits not in taken:
            break
    taken.add(digits)
    name = dice.choice(_ELSEWHERE) if dice.random() < 0.03 else f"{dice.choice(_FIRST)} {dice.choice(_LAST)}"
    birthday = f"{dice.randrange(1950, 2008)}-{dice.randrange(1, 13):02}-{dice.randrange(1, 29):02}"
    tags = ";".join(sorted(dice.sample(_TAGS, dice.choice((0, 0, 1, 1, 2, 3)))))
    number = 10_000 + len(taken)
    row = [
        f"C{number}",
        name,
        phone,
        f"{_mailbox(name)}{number % 1000}@{dice.choice(_DOMAINS)}",
        region if region != "NG" or dice.random() < 0.7 else "",
        birthday,
        dice.choice(_PLANS),
        str(dice.randrange(0, 5000)),
        tags,
        dice.choice(_NOTES),
    ]
    return _with_gaps(dice, row)


def _mailbox(name: str) -> str:
    plain = "".join(letter for letter in name.lower().replace(" ", ".") if letter.isascii() and letter not in "'")
    return plain.strip(".") or "customer"


def _with_gaps(dice: random.Random, row: Row) -> Row:
    """Leave out or spoil fields that a campaign does not need."""
    if dice.random() < 0.12:
        row[3] = ""
    elif dice.random() < 0.03:
        row[3] = dice.choice(("ada@", "no-at-sign.example.com", "two@@example.org", "a b@example.com", "none", "-"))
    elif dice.random() < 0.05:
        row[3] = f"  {row[3].upper()} "
    if dice.random() < 0.05:
        row[1] = ""
    if dice.random() < 0.15:
        row[5] = ""
    elif dice.random() < 0.02:
        row[5] = dice.choice(("31/02/1990", "unknown", "1988-13-01"))
    if dice.random() < 0.03:
        row[7] = dice.choice(("lots", "1,204", "12.0"))
    if dice.random() < 0.02:
        return row[: dice.choice((3, 4, 6))]
    return row


def invalid_rows(dice: random.Random, taken: set[str]) -> list[Row]:
    """Return rows without a usable number, for every reason seen in practice."""
    phones = ["2.348E+12"] * 7 + ["2,34803E+12", "", "", "", "n/a", "-", "0803123", "08O3I234567", "+234", "234803"]
    phones += ["08031234567/08057654321", "0803 123 4567 ext. 12", "12345678901234567890", "call Ngozi", "0"]
    rows = []
    for phone in phones:
        row = customer(dice, taken)
        row += [""] * (len(HEADER) - len(row))
        row[2], row[4] = phone, "NG"
        rows.append(row)
    nowhere = customer(dice, taken)
    nowhere += [""] * (len(HEADER) - len(nowhere))
    nowhere[2], nowhere[4] = "0803 555 0199", "Nigeria (Lagos)"
    shifted = customer(dice, taken)
    shifted += [""] * (len(HEADER) - len(shifted)) + ["unquoted", " comma"]
    return [*rows, nowhere, shifted, [""] * len(HEADER), ["", " ", "", " "], [], []]


def duplicates(dice: random.Random, rows: list[Row]) -> list[Row]:
    """Return some rows again: as they are, or with the number in another form."""
    again = [list(row) for row in dice.sample(rows, 24)]
    for row in dice.sample([row for row in rows if row[2].startswith("0") and " " not in row[2] and len(row) > 4], 20):
        if row[2].startswith("00") or row[4] not in ("", "NG"):
            continue
        other = list(row)
        other[2] = dice.choice((f"+234 {row[2][1:]}", f"234{row[2][1:]}", f"'{row[2]}", f"234{row[2][1:]}.0"))
        again.append(other)
    return again


def shared_mailboxes(dice: random.Random, rows: list[Row]) -> None:
    """Let some customers share the address of another one in the family."""
    whole = [row for row in rows if len(row) > 3 and "@example" in row[3]]
    for _ in range(12):
        one, other = dice.sample(whole, 2)
        other[3] = one[3].title() if dice.random() < 0.3 else one[3]


def make(few: bool = False) -> bytes:
    """Return the file, or its first rows: UTF-8 with a byte order mark and Windows line ends, as of a spreadsheet."""
    dice = random.Random(SEED)  # noqa: S311 - the same every time, on purpose
    taken: set[str] = set()
    rows = [customer(dice, taken) for _ in range(GOOD_ROWS)]
    shared_mailboxes(dice, rows)
    for extra in [*duplicates(dice, rows), *invalid_rows(dice, taken)]:
        rows.insert(dice.randrange(5, len(rows)), extra)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(HEADER)
    writer.writerows(rows[:FEW_ROWS] if few else rows)
    return text.getvalue().encode("utf-8-sig")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("customers.csv")
    few_target = Path(sys.argv[2]) if len(sys.argv) > 2 else target.with_name("few_customers.csv")
    target.write_bytes(make())
    few_target.write_bytes(make(few=True))
