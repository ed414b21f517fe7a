"""The site of the documentation in headless Chromium."""

import functools
import http.server
import os
import pathlib
import subprocess
import sys
import threading

import pytest
from browser import CHROMIUM, opened


ROOT = pathlib.Path(__file__).parents[2]
WIDE, NARROW = (1280, 900), (390, 844)
PAGES = (
    "index.html",
    "gallery.html",
    "getting_started.html",
    "control.html",
    "agents.html",
    "derivatives.html",
    "api/eqsim.control.html",
)
# Contrast of two CSS colors, as WCAG 2 defines it.
CONTRAST = """((a, b) => {
  const light = c => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1);
    const x = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x[0] + 0.7152 * x[1] + 0.0722 * x[2] + 0.05;
  };
  const pair = [light(a), light(b)];
  return Math.max(...pair) / Math.min(...pair);
})"""
COLOR = 'getComputedStyle(document.querySelector("{}")).{}'

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        """Print nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Address of the site, which is built and served for these tests."""
    pytest.importorskip("mkdocs", reason="needs the extra `docs`")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def tab(site, tmp_path):
    """A tab with the home page, which must not leave the machine."""
    with opened(f"{site}/index.html", tmp_path, size=WIDE) as page:
        page.resize(*WIDE)
        page.until('!!document.querySelector("h1")')
        yield page
        away = [x for x in page.requests if not x.startswith((site, "data:", "blob:"))]
        assert not away


def go(tab, url: str) -> None:
    """Open a page, and wait until it is loaded."""
    tab.call("Page.navigate", url=url)
    path = url.rpartition("/")[2].partition("#")[0]
    loaded = "document.readyState === 'complete' && !!document.querySelector('h1')"
    tab.until(f"location.pathname.endsWith('{path}') && {loaded}")


def shot(tab, name: str) -> None:
    """Keep a screenshot, if a folder for them is given (`EQSIM_SCREENSHOTS`)."""
    if folder := os.environ.get("EQSIM_SCREENSHOTS"):
        (pathlib.Path(folder) / f"{name}.png").write_bytes(tab.screenshot())


def test_home_leads_to_the_guides(site, tab):
    shot(tab, "home")
    assert tab.run('document.querySelector("h1").innerText').startswith("eqsim")
    assert tab.run('document.querySelectorAll("article pre code span").length') > 20
    tab.run(
        "document.querySelector(\"article a[href='getting_started.html']\").click()"
    )
    tab.until('location.pathname.endsWith("getting_started.html")')


@pytest.mark.parametrize(
    "words, page", [("inverse kinematics", "control.html"), ("MPPI", "control.html")]
)
def test_search_finds_the_guide(site, tab, words, page):
    tab.until('!!document.querySelector("input.md-search__input")')
    tab.run('document.querySelector("input.md-search__input").focus()')
    tab.call("Input.insertText", text=words)
    links = (
        '[...document.querySelectorAll("a.md-search-result__link")].map(a => a.href)'
    )
    tab.until(f"{links}.length > 0")
    shot(tab, f"search_{words.split()[0]}")
    assert page in " ".join(tab.run(links)[:4])
    tab.run('document.querySelector("a.md-search-result__link").click()')
    tab.until("!location.pathname.endsWith('index.html')")


def test_a_guide_shows_formulas_and_code(site, tab):
    go(tab, f"{site}/identification.html")
    shot(tab, "guide")
    sizes = '[...document.querySelectorAll("math")].map(x => x.getBoundingClientRect())'
    assert tab.run(f"{sizes}.length") > 10
    assert tab.run(f"{sizes}.every(r => r.width > 3 && r.height > 5)")
    assert tab.run('document.querySelectorAll("article .highlight button").length') > 3
    assert not tab.run(
        r'document.querySelector("article").innerText.includes("\\frac")'
    )


def test_an_api_page_has_signatures(site, tab):
    go(tab, f"{site}/api/eqsim.control.html#eqsim.control.lqr")
    shot(tab, "api")
    entry = 'document.getElementById("eqsim.control.lqr")'
    tab.until(f"{entry} && Math.abs({entry}.getBoundingClientRect().top) < 400")
    text = tab.run('document.querySelector("article").innerText')
    assert "Float[Array" in text and "Returns:" in text


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_wider_than_a_telephone(site, tab, page):
    tab.resize(*NARROW)
    go(tab, f"{site}/{page}")
    shot(tab, f"narrow_{pathlib.Path(page).stem}")
    assert tab.run("document.scrollingElement.scrollWidth") <= NARROW[0]


@pytest.mark.parametrize("dark", (False, True), ids=("light", "dark"))
def test_text_is_readable(site, tab, dark):
    # The site keeps the scheme of the first visit.
    tab.run("localStorage.clear()")
    tab.resize(*WIDE, dark=dark)
    go(tab, f"{site}/agents.html")
    scheme = "slate" if dark else "default"
    tab.until(f'document.body.dataset.mdColorScheme === "{scheme}"')
    shot(tab, scheme)
    for text, ground in (
        ("article p", "body"),
        ("article p a", "body"),
        ("article pre code", "article pre code"),
        ("article h1", "body"),
    ):
        colors = COLOR.format(text, "color"), COLOR.format(ground, "backgroundColor")
        assert tab.run(f"{CONTRAST}({', '.join(colors)})") > 4.5, text


def test_images_of_the_gallery_load(site, tab):
    go(tab, f"{site}/gallery.html")
    shot(tab, "gallery")
    images = '[...document.querySelectorAll("article img")]'
    assert tab.run(f"{images}.length") > 5
    tab.until(f"{images}.every(x => x.complete && x.naturalWidth > 100)")
