"""Writes the tables of the documentation that come from the code.

python docs/tables.py
"""

import pathlib

from _licenses import license_table

from eqsim.io import support_table
from eqsim.model import SENSOR_FACTS


FOLDER = pathlib.Path(__file__).parent


def sensor_table() -> str:
    """The kinds of sensors, as a Markdown table."""
    lines = ["| MJCF | Size | Unit | Meaning |", "|---|--:|---|---|"]
    for kind, facts in SENSOR_FACTS.items():
        size = facts.size or "varies"
        lines.append(f"| `{kind.value}` | {size} | {facts.unit} | {facts.meaning} |")
    return "\n".join(lines)


def with_table(page: str, name: str, table: str) -> str:
    """Return a page with a table between its two marks."""
    start, end = (
        f"<!-- {name}: written by docs/tables.py -->",
        f"<!-- end of {name} -->",
    )
    before, rest = page.split(start)
    return f"{before}{start}\n\n{table}\n\n{end}{rest.split(end)[1]}"


def main() -> None:
    """Write what MJCF features are supported, the kinds of sensors, and licenses."""
    page = FOLDER / "mjcf-support.md"
    page.write_text(support_table(), encoding="utf-8")
    print(f"wrote {page}")
    for file, name, table in (
        ("sensors.md", "kinds", sensor_table()),
        ("licenses.md", "licenses", license_table()),
    ):
        page = FOLDER / file
        text = with_table(page.read_text(encoding="utf-8"), name, table)
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page}")


if __name__ == "__main__":
    main()
