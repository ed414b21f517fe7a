"""Writes the tables of the documentation that come from the code.

python docs/tables.py
"""

import pathlib

from eqsim.io import support_table


def main() -> None:
    """Writes what MJCF features are supported."""
    page = pathlib.Path(__file__).parent / "mjcf-support.md"
    page.write_text(support_table(), encoding="utf-8")
    print(f"wrote {page}")


if __name__ == "__main__":
    main()
