"""The site of the documentation: every public name has an entry, every page a menu."""

import importlib
import pathlib
import pkgutil
import re
import sys

import pytest

import eqsim
import eqsim_zoo


ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hooks():
    pytest.importorskip("mkdocs", reason="needs the extra `docs`")
    pytest.importorskip("latex2mathml", reason="needs the extra `docs`")
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("hooks")
    finally:
        sys.path.remove(str(ROOT / "docs"))


def _public_names(library):
    """All names that users reach, from the imported packages themselves."""
    found = {library.__name__: library}
    for info in pkgutil.walk_packages(library.__path__, f"{library.__name__}."):
        if info.ispkg and "._" not in info.name:
            found[info.name] = importlib.import_module(info.name)
    for package, module in found.items():
        for name, value in vars(module).items():
            is_module = isinstance(value, type(sys))
            if not name.startswith("_") and not is_module:
                yield f"{package}.{name}"


@pytest.mark.parametrize("library", (eqsim, eqsim_zoo), ids=lambda m: m.__name__)
def test_public_names_have_entries(hooks, library):
    pages = map(hooks.reference_page, hooks.public_packages())
    entries = set(re.findall(r"^::: (\S+)$", "\n".join(pages), re.MULTILINE))
    assert not set(_public_names(library)) - entries


def test_formulas_become_mathml(hooks):
    page = r'<p><span class="arithmatex">\(x &lt; \sqrt{y}\)</span></p>'
    found = hooks.on_page_content(page)
    assert "<msqrt>" in found and "arithmatex" not in found


def test_pages_are_in_the_menu():
    yaml = pytest.importorskip("yaml", reason="needs the extra `docs`")
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    menu = {page for part in yaml.safe_load(text)["nav"] for page in _pages(part)}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} == menu


def _pages(entry):
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from _pages(part)
