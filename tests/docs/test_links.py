"""Links in all pages of the repository lead somewhere, and names in them exist."""

import dataclasses
import importlib
import pathlib
import re

import pytest


ROOT = pathlib.Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s#:]+)(?:#([^)\s]+))?\)")
NAME = re.compile(r"`((?:eqsim|eqsim_zoo)(?:\.\w+)+)(?:\([^`]*\))?`")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
FOLDERS = (".", "docs", "zoo", "benchmarks", "plugins/*")
PAGES = sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/*.md"))


def anchors(path):
    """Anchors of the headings of a page."""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("#"):
            words = re.sub(r"[^\w\s-]", "", line.strip("# ")).lower()
            yield re.sub(r"\s+", "-", words)


@pytest.mark.parametrize("page", PAGES, ids=lambda x: x.relative_to(ROOT).as_posix())
def test_links(page):
    """The site checks pages of `docs`; this also checks README and plugins."""
    text = FENCED.sub("", page.read_text("utf-8"))
    for target, anchor in LINK.findall(text):
        path = (page.parent / target).resolve()
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{target}#{anchor}"


def exists(name):
    """Whether a dotted name is a module, a public object or a field of a class."""
    first, *parts = name.split(".")
    value = importlib.import_module(first)
    for number, part in enumerate(parts, 1):
        fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
        if part in {field.name for field in fields}:
            return True
        if not hasattr(value, part):
            try:
                importlib.import_module(".".join([first, *parts[:number]]))
            except ImportError:
                return False
        value = getattr(value, part)
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda x: x.relative_to(ROOT).as_posix())
def test_names(page):
    text = FENCED.sub("", page.read_text("utf-8"))
    unknown = {name for name in NAME.findall(text) if not exists(name)}
    # Groups of entry points and loggers are written like names.
    assert not unknown - GROUPS


GROUPS = {f"eqsim.{x}" for x in ("envs pipelines agents commands runs kernels").split()}
