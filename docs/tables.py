"""Writes the tables of the documentation that come from the code.

python docs/tables.py
"""

import pathlib

from eqsim.io import support_table
from eqsim.model import SENSOR_FACTS


FOLDER = pathlib.Path(__file__).parent
START, END = "<!-- kinds: written by docs/tables.py -->", "<!-- end of kinds -->"


def sensor_table() -> str:
    """The kinds of sensors, as a Markdown table."""
    lines = ["| MJCF | Size | Unit | Meaning |", "|---|--:|---|---|"]
    for kind, facts in SENSOR_FACTS.items():
        size = facts.size or "varies"
        lines.append(f"| `{kind.value}` | {size} | {facts.unit} | {facts.meaning} |")
    return "\n".join(lines)


def with_sensor_table(page: str) -> str:
    """A page with the table of sensors between its two marks."""
    before, rest = page.split(START)
    return f"{before}{START}\n\n{sensor_table()}\n\n{END}{rest.split(END)[1]}"


def main() -> None:
    """Writes what MJCF features are supported, and the kinds of sensors."""
    page = FOLDER / "mjcf-support.md"
    page.write_text(support_table(), encoding="utf-8")
    sensors = FOLDER / "sensors.md"
    text = with_sensor_table(sensors.read_text(encoding="utf-8"))
    sensors.write_text(text, encoding="utf-8")
    print(f"wrote {page} and {sensors}")


if __name__ == "__main__":
    main()
