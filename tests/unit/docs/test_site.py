"""The site as it is built: whole, without a host of somebody else, and with a search that knows error messages."""

from __future__ import annotations

import functools
import http.server
import json
import re
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from cpaas_provider.provider_info import DOCUMENTATION, get_provider_info
from tests.cpaas_sandbox.page.browser import DRIVER, Browser, browsing
from tests.unit.docs import DOCS, PAGES, ROOT

from cpaas_docs import messages  # isort: skip

# What a browser fetches by itself.
_FETCHED = re.compile(r"<(?:script|img|iframe|source|audio|video)\b[^>]*\bsrc=\"([^\"]*)\"|<link\b([^>]*)>", re.I)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it as ``make docs`` does."""
    out = tmp_path_factory.mktemp("site")
    options = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", "-d", str(out / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(DOCS), str(out / "html")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
    return out / "html"


def test_every_page_is_built_and_checked(site: Path) -> None:
    made = {page.relative_to(site).with_suffix("") for page in site.rglob("*.html")}
    pages = {page.relative_to(DOCS).with_suffix("") for page in PAGES}
    assert made - pages == {Path("genindex"), Path("search")}
    assert pages <= made


def test_site_fetches_from_no_other_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        for source, link in _FETCHED.findall(page.read_text(encoding="utf-8")):
            if link and 'rel="canonical"' in link:
                continue
            fetched = source or "".join(re.findall(r'href="([^"]*)"', link))
            assert not re.match(r"(https?:)?//", fetched), f"{page.name}: {fetched}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_pages_that_airflow_links_to_are_built(site: Path) -> None:
    (integration,) = get_provider_info()["integrations"]  # type: ignore[misc]
    for url in (integration["external-doc-url"] + "index.html", *integration["how-to-guide"]):
        assert (site / url.removeprefix(DOCUMENTATION)).is_file(), url


def test_inner_links_lead_somewhere(site: Path) -> None:
    """Sphinx checks those it writes itself; these are all there are in what it wrote."""
    anchors = functools.cache(lambda page: set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8"))))
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r'<a\b[^>]*\bhref="([^":]*)"', text):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{page.relative_to(site)}: {link}"
            assert not anchor or anchor in anchors(target), f"{page.relative_to(site)}: {link}"


def inventory_of(site: Path) -> dict[str, dict[str, str]]:
    """Return the links of the inventory, by kind of object and name; four lines of it are not compressed."""
    links: dict[str, dict[str, str]] = {}
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    for line in zlib.decompress(packed).decode().splitlines():
        if found := re.fullmatch(r"(\S+) (py:\w+) -?\d+ (\S+) .*", line):
            name, kind, link = found.groups()
            links.setdefault(kind, {})[name] = link.removesuffix("$") + (name if link.endswith("$") else "")
    return links


def test_inventory_has_the_python_objects(site: Path) -> None:
    """Another project's documentation links to them by their names."""
    inventory = inventory_of(site)
    for name in (
        "cpaas_provider.operators.SendSmsOperator",
        "cpaas_provider.sensors.DeliverySensor",
        "cpaas_provider.sources.SqlSource",
        "cpaas_provider.hooks.cpaas.CpaasHook",
    ):
        page, _, anchor = inventory["py:class"][name].partition("#")
        assert anchor == name.rpartition(".")[2].lower()
        assert f'id="{anchor}"' in (site / page).read_text(encoding="utf-8")
    assert "cpaas_provider.api.CpaasClient.send_sms" in inventory["py:method"]
    assert "cpaas_provider.operators.partitions" in inventory["py:function"]
    assert "cpaas_provider.api.CpaasError" in inventory["py:exception"]


@pytest.fixture(scope="module")
def url(site: Path) -> Iterator[str]:
    """Serve it on this machine."""
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if DRIVER is None:
        pytest.skip("no chromedriver on this machine")
    with browsing(tmp_path_factory.mktemp("profile")) as one:
        yield one


PASTED, BEGUN = 6, 2


def some_message(number: int, of: int) -> messages.Message:
    """Return one of so many messages, taken from all over the code."""
    sentences = [one for one in messages.collect() if one.is_sentence and len(one.words) >= 8]
    return sentences[number * len(sentences) // of]


@pytest.mark.parametrize("number", range(PASTED))
def test_pasted_message_finds_its_entry(site: Path, url: str, browser: Browser, number: int) -> None:
    """As it stands in a log: with what is filled in, and what Airflow writes before it."""
    message = some_message(number, PASTED)
    filled = message.text.replace(messages.GAP, "'crm_staging_42'")
    pasted = f"[2026-03-01, 09:14:02 UTC] {{taskinstance.py:3311}} ERROR - {message.kind}: {filled}"
    browser.open(f"{url}/search.html")
    browser.run(f"location.search = '?q=' + encodeURIComponent({json.dumps(pasted)})")
    assert message.title in until_shown(browser, "#message-results a")
    links = browser.run(
        "return [...document.querySelectorAll('#message-results a')].map((a) => a.getAttribute('href'))"
    )
    assert messages.link_of(message) in links
    page, _, anchor = messages.link_of(message).partition("#")
    assert f'id="{anchor}"' in (site / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("number", range(BEGUN))
def test_first_words_of_a_message_find_its_entry(url: str, browser: Browser, number: int) -> None:
    message = some_message(number, BEGUN)
    browser.open(f"{url}/search.html")
    browser.run(f"location.search = '?q=' + encodeURIComponent({json.dumps(message.title)})")
    assert message.title in until_shown(browser, "#message-results a")


def test_other_words_find_pages_alone(url: str, browser: Browser) -> None:
    browser.open(f"{url}/search.html?q=metrics")
    until_shown(browser, "#search-results .search li a")
    assert browser.texts("#message-results a") == []


def until_shown(browser: Browser, selector: str) -> list[str]:
    deadline = time.monotonic() + 20
    while not (shown := browser.texts(selector)):
        assert time.monotonic() < deadline, f"nothing is shown at {selector}"
        browser.run("return new Promise((done) => setTimeout(done, 50))")
    return shown
