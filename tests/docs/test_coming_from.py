"""Names in the tables of docs/coming_from.md."""

import dataclasses
import importlib
import inspect
import pathlib
import re

import pytest

import eqsim
import eqsim_zoo


PAGE = pathlib.Path(__file__).parents[2] / "docs" / "coming_from.md"
CODE = re.compile(r"`([^`]+)`")


def tables():
    """Header and rows of each table."""
    found, inside = [], False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not inside:
            found.append((cells[0], []))
        elif not set(cells[0]) <= {"-"}:
            found[-1][1].append(cells)
        inside = True
    return found


OURS = [
    code
    for header, rows in tables()
    if "BraxEnv" not in header
    for row in rows
    for code in CODE.findall(row[1])
]


def resolve(path):
    """The object of a name; None for a field of a class."""
    value = eqsim if path.startswith("eqsim.") else eqsim_zoo
    for part in path.removeprefix("eqsim.").split("."):
        fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
        if part in {field.name for field in fields}:
            return None
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("code", sorted({*OURS}))
def test_names_exist(code):
    path, _, argument = code.rstrip("=)").partition("(")
    value = resolve(path)
    if argument:
        assert argument in inspect.signature(value).parameters


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "header, module, function",
    (
        ("`brax.training.agents.ppo.train`", "agents.ppo.train", "train"),
        ("`brax.training.agents.sac.train`", "agents.sac.train", "train"),
        ("`make_ppo_networks`", "agents.ppo.networks", "make_ppo_networks"),
    ),
)
def test_every_argument_of_brax_is_listed(header, module, function):
    pytest.importorskip("brax", reason="needs the extra `bench`")
    found = getattr(importlib.import_module(f"brax.training.{module}"), function)
    ((_, rows),) = [table for table in tables() if table[0] == header]
    listed = {code for row in rows for code in CODE.findall(row[0])}
    assert listed == {*inspect.signature(found).parameters}
