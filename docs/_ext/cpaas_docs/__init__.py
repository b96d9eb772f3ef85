"""Sphinx extension: anchors and Python objects of the reference, and a search that knows error messages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

MESSAGES_FILE = "messages-data.js"
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')


def setup(app: Sphinx) -> dict[str, Any]:
    """Have Sphinx know the anchors of the pages, and give the search page what it needs to recognise a message."""
    app.connect("source-read", _expand)
    app.connect("doctree-read", _know_anchors)
    app.connect("config-inited", _write_messages)
    app.connect("html-page-context", _search_messages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _expand(app: Sphinx, name: str, source: list[str]) -> None:
    from cpaas_docs.pages import BLOCK, expanded

    if BLOCK.search(source[0]):
        app.env.note_reread()
        source[0] = expanded(source[0])


def _know_anchors(app: Sphinx, doctree: Any) -> None:
    """Let links lead to arguments, and put the Python objects of a page into the inventory.

    A Git host needs anchors in HTML, which Sphinx passes on without reading them.
    """
    from cpaas_docs.pages import parts_of
    from cpaas_docs.signatures import objects

    name = app.env.docname
    text = Path(app.env.doc2path(name)).read_text(encoding="utf-8")
    slugs = app.env.metadata[name].setdefault("myst_slugs", {})
    for anchor in _ANCHOR.findall(text):
        slugs.setdefault(anchor, (None, anchor, anchor.rpartition("-")[2]))
    python = app.env.domains.python_domain
    for part in parts_of(text):
        for path, role, anchor in objects(part.kind, *part.rest):
            python.note_object(path, role, anchor, location=doctree)


def _write_messages(app: Sphinx, config: Config) -> None:
    from cpaas_docs.messages import as_json

    folder = Path(app.doctreedir) / "made"
    folder.mkdir(parents=True, exist_ok=True)
    known = json.dumps(as_json(), ensure_ascii=False)
    (folder / MESSAGES_FILE).write_text(f"globalThis.CPAAS_MESSAGES = {known};\n", encoding="utf-8")
    config.html_static_path.append(str(folder))


def _search_messages(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    if template == "search.html":
        app.add_js_file(MESSAGES_FILE)
        app.add_js_file("messages.js")
