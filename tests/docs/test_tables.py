"""Tables of the documentation that nobody writes by hand."""

import importlib
import json
import pathlib

import pytest


DOCS = pathlib.Path(__file__).parents[2] / "docs"
REPORTS = sorted((DOCS / "data").glob("*.json"))


@pytest.fixture(scope="module")
def tables():
    pytest.importorskip("packaging", reason="needs the extra `docs`")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        return importlib.import_module("tables")


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_reports_are_stored_as_they_were_written(tables, path):
    text = tables.report(path)
    assert tables.as_json(tables.parse(text)) == path.read_text("utf-8")
    for block in json.loads(path.read_text("utf-8")):
        if isinstance(block, dict):
            assert {len(row) for row in block["rows"]} == {len(block["columns"])}


@pytest.mark.parametrize("name", ("mjcf", "sensors", "envs", "env_checks", "agents"))
def test_marks_are_replaced(tables, name):
    page = tables.with_tables(f"above\n\n<!-- table: {name} -->\n\nbelow")
    assert page.count("\n| ") > 10 and "<!--" not in page
    marked = [
        x.name for x in DOCS.glob("*.md") if f"table: {name} -->" in x.read_text()
    ]
    assert len(marked) == 1
