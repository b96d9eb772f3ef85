"""Usual notations of CSV files, and the rows they have after their header."""

from __future__ import annotations

from typing import Any

USUAL: list[tuple[str, list[tuple[Any, ...]]]] = [
    ('first,address\nJohn,"120 any st., Anytown"\n', [("John", "120 any st., Anytown")]),
    ('a,b\n1,"ha ""ha"" ha"\n3,4\n', [("1", 'ha "ha" ha'), ("3", "4")]),
    (
        'key,val\n1,"{""type"": ""Point"", ""at"": [102.0, 0.5]}"\n',
        [("1", '{"type": "Point", "at": [102.0, 0.5]}')],
    ),
    ('a,b\n1,"6.5244, 3.3792"\n', [("1", "6.5244, 3.3792")]),
    ('a,b,c\n1,"",""\n2,3,4\n', [("1", None, None), ("2", "3", "4")]),
    ("a,b,c\n1,2,3\n4,5,ʤ\n", [("1", "2", "3"), ("4", "5", "ʤ")]),
    ("a,b,c\n1,2,3", [("1", "2", "3")]),
    ("a,b,c\n1\n2,x\n3,,\n", [("1", None, None), ("2", "x", None), ("3", None, None)]),
    ('a,b\n"""1""",""""\n', [('"1"', '"')]),
    ('a,b\n  "1" ,\t2\n', [("1", "2")]),
]
