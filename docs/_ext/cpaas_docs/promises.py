"""The promises, each with the tests that hold the code to it, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from cpaas_docs.signatures import find


def promises() -> Iterator[str]:
    """Yield a section for each part of the promises, and below each promise its tests by node id."""
    for title, part in find("tests.promises.PARTS").items():
        yield f"## {title}"
        yield ""
        yield "| Promise | Tests |"
        yield "|---|---|"
        for promise, tests in part.items():
            links = "<br>".join(f"`{test}`" for test in tests)
            yield f"| {promise[0].upper()}{promise[1:]}. | {links} |"
        yield ""
