"""The site of the documentation: every public name has an entry, every page a menu."""

import importlib
import json
import pathlib
import pkgutil
import re
import sys

import jax
import pytest

import eqsim
import eqsim_zoo


ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


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
    docs = ROOT / "docs"
    pages = {path.name for path in docs.glob("*.md")}
    notebooks = {f"notebooks/{p.stem}.md" for p in docs.glob("notebooks/*.ipynb")}
    assert menu == pages | notebooks


def test_images_of_the_gallery_are_shown_and_small():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    files = [*(ROOT / "docs" / "images" / "gallery").iterdir()]
    shown = {
        pathlib.Path(path).name for path in re.findall(r"gallery/\S+?\.webp", text)
    }
    assert shown == {file.name for file in files}
    sizes = [file.stat().st_size for file in files]
    assert max(sizes) < 300_000 and sum(sizes) < 2_000_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.slow
def test_notebooks_run(path, monkeypatch):
    """All code cells of a notebook, in one namespace."""
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="needs the extra `cli`")
    monkeypatch.setattr(pyplot, "show", lambda: pyplot.close("all"))
    pyplot.switch_backend("Agg")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    namespace = {}
    # With JAX's default settings.
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        for block in code:
            exec(compile(block, path.name, "exec"), namespace)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_store_their_outputs(hooks, path):
    text, images = hooks.notebook_page(path)
    assert images and all(data.startswith(b"\x89PNG") for data in images.values())
    assert "```text" in text and "Traceback" not in text


def _pages(entry):
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from _pages(part)
