"""Tables of the documentation.

    python docs/tables.py                                   # write all tables to out/tables
    python docs/tables.py --store out/derivatives.md        # keep the report of a benchmark

Two kinds of tables are not written by hand. Tables of the code (supported MJCF features,
kinds of sensors, environments, checks of the conformance kit, arguments of agents, licenses)
are computed whenever the site is built, and stand where a page says `<!-- table: NAME -->`.
Reports of benchmarks are kept as data in `docs/data`, one JSON file for each, and become
pages of their own, to which the pages of results link.
"""

import argparse
import dataclasses
import inspect
import json
import pathlib
import re

from _licenses import license_table


FOLDER = pathlib.Path(__file__).parent
DATA = FOLDER / "data"
MARK = re.compile(r"<!-- table: (\w+) -->")


def mjcf_table() -> str:
    """Supported, ignored and refused MJCF features."""
    from eqsim.io import support_table

    return support_table().partition("\n## ")[2].join(("## ", ""))


def sensor_table() -> str:
    """Kinds of sensors."""
    from eqsim.model import SENSOR_FACTS

    rows = [
        [f"`{kind.value}`", str(facts.size or "varies"), facts.unit, facts.meaning]
        for kind, facts in SENSOR_FACTS.items()
    ]
    return as_table(["MJCF", "size", "unit", "meaning"], "lrll", rows)


def check_table(kind: str) -> str:
    """Checks of the conformance kit for a `kind` of object: env, pipeline or agent."""
    import eqsim
    import eqsim_zoo
    from eqsim.testing import conformance, probes

    objects = {
        "env": probes.point_mass(),
        "pipeline": eqsim.Generalized(),
        "agent": eqsim_zoo.PPO(),
    }
    checks = conformance.checks_of(objects[kind])
    rows = [[f"`{check.name}`", check.law] for check in checks]
    return as_table(["check", "requirement"], "ll", rows)


def env_tables() -> str:
    """Observation, reward and options of each environment of eqsim, with a heading."""
    import eqsim

    found = [
        (name, eqsim.plugins.ENVS.get(name)) for name in eqsim.plugins.ENVS.names()
    ]
    parts = []
    for name, make in found:
        if make not in vars(eqsim.envs).values():
            continue
        about = (inspect.getdoc(make) or "").partition("**Arguments:**")[0].strip()
        table = argument_table(make(), "option", ("sys", "pipeline"))
        parts.append(f"### {name}\n\n{about}\n\n{table}")
    return "\n\n".join(parts)


AGENTS = "PPO RecurrentPPO SAC TD3 APG SHAC ES ARS DIAYN DADS METRA".split()
ARGUMENT = re.compile(
    r"^ *- ((?:`\w+`(?:,\s+)?)+): (.*?)(?=\n *- `|\n\n|\Z)", re.M | re.S
)


def agent_tables() -> str:
    """Arguments of all online agents, with a heading for each agent."""
    import eqsim_zoo

    return "\n\n".join(
        f"### {name}\n\n{argument_table(getattr(eqsim_zoo, name)())}" for name in AGENTS
    )


def argument_table(
    item: object, title: str = "argument", omitted: tuple[str, ...] = ()
) -> str:
    """Arguments of an object: names, defaults, and descriptions in its docstrings."""
    meanings = {}
    for cls in type(item).__mro__:
        for names, text in ARGUMENT.findall(inspect.getdoc(cls) or ""):
            for name in re.findall(r"\w+", names):
                meanings.setdefault(name, " ".join(text.split()).replace("|", r"\|"))
    rows = [
        [f"`{field.name}`", default_of(item, field.name), meanings.get(field.name, "")]
        for field in dataclasses.fields(item)
        if field.name not in omitted
    ]
    return as_table([title, "default", "meaning"], "lll", rows)


def default_of(item: object, name: str) -> str:
    """Return the value of an argument of an object as text."""
    value = getattr(item, name)
    if dataclasses.is_dataclass(value):
        return f"`{type(value).__name__}()`"
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return ", ".join(f"{x:.6g}" if isinstance(x, float) else str(x) for x in value)
    # Of a member of an enumeration, the name.
    text = re.sub(r"^[A-Z]\w+\.", "", str(value))
    return f"{value:.6g}" if isinstance(value, float) else text


COMPUTED = {
    "mjcf": mjcf_table,
    "sensors": sensor_table,
    "envs": env_tables,
    "env_checks": lambda: check_table("env"),
    "pipeline_checks": lambda: check_table("pipeline"),
    "agent_checks": lambda: check_table("agent"),
    "agents": agent_tables,
    "licenses": license_table,
}


def with_tables(text: str) -> str:
    """Return a page with the computed tables at their marks."""
    return MARK.sub(lambda mark: COMPUTED[mark[1]](), text)


def as_table(columns: list[str], align: str, rows: list[list[str]]) -> str:
    """Return a table in Markdown; `align` is a letter for each column, `l` or `r`."""
    lines = [columns, ["--:" if letter == "r" else "---" for letter in align], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def report(path: pathlib.Path) -> str:
    """Return the stored report of a benchmark, in Markdown."""
    blocks = json.loads(path.read_text(encoding="utf-8"))
    parts = [x if isinstance(x, str) else as_table(**x) for x in blocks]
    return "\n\n".join([*parts, ""])


def parse(text: str) -> list[str | dict]:
    """Split a report in Markdown into text and tables, the inverse of `report`."""
    blocks = []
    for part in re.split(r"\n{2,}", text.strip()):
        lines = part.splitlines()
        if not part.startswith("|"):
            blocks.append(part)
            continue
        columns, marks, *rows = [
            [cell.strip() for cell in line.strip().strip("|").split("|")]
            for line in lines
        ]
        align = "".join("r" if mark.endswith(":") else "l" for mark in marks)
        blocks.append({"columns": columns, "align": align, "rows": rows})
    return blocks


def as_json(blocks: list[str | dict]) -> str:
    """Return blocks as JSON, with one line for each row of a table."""
    parts = []
    for block in blocks:
        if isinstance(block, str):
            parts.append(json.dumps(block, ensure_ascii=False))
            continue
        head = {name: block[name] for name in ("columns", "align")}
        rows = [json.dumps(row, ensure_ascii=False) for row in block["rows"]]
        start = json.dumps(head, ensure_ascii=False)[:-1]
        parts.append(f'{start}, "rows": [\n  ' + ",\n  ".join(rows) + "]}")
    return "[\n" + ",\n".join(parts) + "\n]\n"


def main() -> None:
    """Write all tables as Markdown, or store a report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=pathlib.Path, help="a report in Markdown")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/tables"))
    options = parser.parse_args()
    if options.store:
        text = as_json(parse(options.store.read_text(encoding="utf-8")))
        path = DATA / f"{options.store.stem}.json"
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    tables = {name: table() for name, table in COMPUTED.items()}
    tables |= {path.stem: report(path) for path in sorted(DATA.glob("*.json"))}
    for name, text in tables.items():
        path = options.out / f"{name}.md"
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
