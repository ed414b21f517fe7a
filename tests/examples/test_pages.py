"""What README and docs show runs as it stands."""

import pathlib
import re

import pytest
from opengl import needs_opengl


ROOT = pathlib.Path(__file__).parents[2]
CODE = re.compile(r"<!-- code: (\S+) -->")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
QUICK = ("README.md", "docs/getting_started.md")
# Pages whose examples need a plugin or a long training, or have tests of their own.
ELSEWHERE = {
    "docs/deploy.md",
    "docs/plugins.md",
    "docs/pytorch.md",
    "docs/testing.md",
    "docs/training.md",
    "docs/your_own_task.md",
}
NEEDS_OPENGL = {"docs/cli.md"}


def text(file):
    """A page with the files that it shows, as on the site."""
    code = lambda found: f"```python\n{(ROOT / found[1]).read_text('utf-8')}```"
    return CODE.sub(code, file.read_text("utf-8"))


def pages():
    """All pages with examples, by their paths."""
    files = [ROOT / "README.md", ROOT / "zoo" / "README.md"]
    files += [*(ROOT / "docs").glob("*.md"), *(ROOT / "plugins").glob("*/*.md")]
    found = [file for file in sorted(files) if BLOCK.search(text(file))]
    return [file.relative_to(ROOT).as_posix() for file in found]


def blocks(page):
    return BLOCK.findall(text(ROOT / page))


def marked(page):
    marks = [] if page in QUICK else [pytest.mark.slow]
    marks += [needs_opengl] if page in NEEDS_OPENGL else []
    return pytest.param(page, marks=marks)


PAGES = pages()
RUN = [p for p in PAGES if p not in ELSEWHERE and not p.startswith("plugins/")]


@pytest.mark.parametrize("page", PAGES)
def test_examples_parse(page):
    for block in blocks(page):
        compile(block, page, "exec")


@pytest.mark.parametrize("page", [marked(page) for page in RUN])
def test_examples_run(page, monkeypatch, tmp_path):
    """All Python blocks of a page, in one namespace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "docs" / "examples")
    namespace = {}
    for block in blocks(page):
        exec(compile(block, page, "exec"), namespace)
