"""Tests that docs/third_party_tests.md names."""

import ast
import functools
import pathlib
import re

import pytest


ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "third_party_tests.md"
OURS = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
FOLDER = re.compile(r"Files are in\s+`([^`]+/)`")
CITED = re.compile(r"`(test_\w+)`")


def rows():
    """Folder of the tests, library, and cells of each row, with the header."""
    found = []
    for section in re.split(r"\n## ", PAGE.read_text(encoding="utf-8"))[1:]:
        (folder,) = FOLDER.findall(section)
        library = section.partition("\n")[0]
        for table in re.findall(r"(?:^\|.*\n?)+", section, re.MULTILINE):
            lines = [line.strip("|").split(" | ") for line in table.splitlines()]
            header, _, *cells = [[cell.strip() for cell in line] for line in lines]
            found += [(ROOT / folder, library, header[0], row) for row in cells]
    return found


ROWS = rows()


@functools.cache
def functions(file):
    """Docstrings of the functions of a file, by name."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return {node.name: ast.get_docstring(node) or "" for node in nodes}


def test_every_row_names_a_test_or_a_reason():
    wrong = []
    for folder, _, _, (theirs, law, ours) in ROWS:
        reason = ours.startswith("Does not apply: ")
        if not (theirs and law and (OURS.search(ours) or reason)):
            wrong.append(theirs)
        for file, name in OURS.findall(ours):
            path = folder / file
            if not path.exists() or name not in functions(path):
                wrong.append(f"{path}::{name}")
    assert not wrong, "\n".join(wrong)
    assert len(ROWS) > 60


def test_no_row_is_repeated():
    names = [(header, row[0]) for _, _, header, row in ROWS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("library", ("Gymnasium", "QDax"))
def test_docstrings_and_page_agree(library):
    """A test whose docstring names tests of a library is in their rows, and in no other."""
    own = [row for row in ROWS if row[1] == library]
    cited = set()
    for file in own[0][0].glob("test_*.py"):
        for name, docstring in functions(file).items():
            if docstring.startswith(f"{library}: "):
                others = CITED.findall(docstring)
                cited |= {(file.name, name, other) for other in others}
    citing = {(file, name) for file, name, _ in cited}
    listed = {
        (*ours, theirs.strip("`"))
        for *_, (theirs, _, cell) in own
        for ours in OURS.findall(cell)
        if ours in citing
    }
    assert cited and cited == listed
