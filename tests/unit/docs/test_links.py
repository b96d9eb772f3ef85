"""Links lead somewhere: to files of the repository, to pages of the site, or to hosts that are known."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cpaas_provider.provider_info import DOCUMENTATION
from tests.unit.docs import DOCS, PAGES, PROJECT, README, ROOT, named

from cpaas_docs.pages import PART  # isort: skip

# Hosts that README and the pages may link to. Nothing is fetched from them, neither by a test nor by a page.
OUTSIDE = {
    "airflow.apache.org": "Airflow's own documentation",
    "semver.org": "what the versions mean",
}
# Names that RFC 2606 keeps for examples, and this machine.
_EXAMPLES = re.compile(r"(^|\.)(example(\.(com|org|net))?|test|invalid|localhost)$|^127\.0\.0\.1$|^host$")
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.M)
_SECTION = re.compile(r"\d+(?:\.\d+)?")
# contract.md 2.5, 4.9 to 4.13 and 7
_CITATION = re.compile(rf"contract\.md ((?:(?:, | and | to )?{_SECTION.pattern})+)")
_URL = re.compile(r"https?://[^\s)>\"'`\]]+")


def without_programs(page: Path) -> str:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "code", text)


def links_of(page: Path) -> list[str]:
    return [one or other for one, other in _LINK.findall(without_programs(page))]


@pytest.mark.parametrize("page", [README, *PROJECT, *PAGES], ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links_of(page):
        parts = urlsplit(link)
        if link.startswith(DOCUMENTATION):
            path = link.removeprefix(DOCUMENTATION).partition("#")[0] or "index.html"
            assert (DOCS / path).with_suffix(".md").is_file(), link
        elif parts.scheme in ("http", "https"):
            assert parts.hostname in OUTSIDE or _EXAMPLES.search(parts.hostname or ""), link
        elif parts.scheme:
            assert parts.scheme == "mailto", link
        elif parts.path:
            target = (page.parent / parts.path).resolve()
            assert target.is_relative_to(ROOT), link
            assert target.exists(), link
            assert not parts.fragment or parts.fragment in anchors(target), link
        elif parts.fragment:
            assert parts.fragment in anchors(page), link


@pytest.mark.parametrize("page", [README, *PROJECT, *PAGES], ids=named)
def test_every_link_has_words(page: Path) -> None:
    """Sphinx fills an empty link with a title. A Git host shows nothing."""
    assert "[](" not in without_programs(page)


@pytest.mark.parametrize("page", [README, *PAGES], ids=named)
def test_urls_of_programs_are_examples(page: Path) -> None:
    """No program that is copied from here reaches a host of somebody else."""
    known = {*OUTSIDE, urlsplit(DOCUMENTATION).hostname}
    cells = {"cells", "recipients", "files"}
    text = PART.sub(lambda part: "" if part["kind"] in cells else part.group(), page.read_text(encoding="utf-8"))
    for url in _URL.findall(text):
        host = urlsplit(url).hostname or ""
        assert host in known or _EXAMPLES.search(host) or not re.fullmatch(r"[\w.-]+", host), url


def test_every_outside_host_is_linked_to() -> None:
    linked = {urlsplit(link).hostname for page in (README, ROOT / "CHANGELOG.md", *PAGES) for link in links_of(page)}
    assert set(OUTSIDE) <= linked


def test_cited_sections_of_the_contract_exist() -> None:
    contract = DOCS / "contributing/contract.md"
    sections = set(re.findall(r"^#+ (\d+(?:\.\d+)?)\.? ", contract.read_text(encoding="utf-8"), re.M))
    cited: dict[str, list[str]] = {}
    for folder in ("provider", "tests"):
        for module in (ROOT / folder).rglob("*.py"):
            for citation in _CITATION.findall(module.read_text(encoding="utf-8")):
                for section in _SECTION.findall(citation):
                    cited.setdefault(section, []).append(str(module.relative_to(ROOT)))
    assert len(cited) > 20
    assert {section: modules for section, modules in cited.items() if section not in sections} == {}


def headings(page: Path) -> list[str]:
    """Return the anchors that a Git host gives to the headings of a page."""
    lines = re.findall(r"^#+ (.*)$", re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.M | re.S), re.M)
    return [re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines]


def anchors(page: Path) -> set[str]:
    return {*headings(page), *re.findall(r'<a id="([^"]+)"', page.read_text("utf-8"))}
