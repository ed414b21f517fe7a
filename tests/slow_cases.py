"""Which cases of parametrized tests `make test` leaves out, chosen by measured times.

    pytest -m "not slow" --junitxml out/times.xml
    python tests/slow_cases.py out/times.xml

Of the cases of one test, those that took longer than a limit are slow, except the quickest.
The list is `slow_cases.txt`; `conftest.py` marks what is on it.
"""

import argparse
import collections
import pathlib
import xml.etree.ElementTree as ElementTree


LIST = pathlib.Path(__file__).with_suffix(".txt")
PAGES = "tests/examples/test_readme.py::test_examples"
ALWAYS = frozenset({f"{PAGES}[README.md]", f"{PAGES}[docs/your_robot.md]"})
"""Cases that `make test` runs however long they take."""


def main() -> None:
    """Adds to the list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("times", type=pathlib.Path, help="a JUnit file of pytest")
    parser.add_argument("--limit", type=float, default=2.0, help="seconds")
    options = parser.parse_args()
    chosen = {*listed(), *slow(options.times, options.limit)} - ALWAYS
    LIST.write_text("\n".join([*sorted(chosen), ""]))


def listed() -> list[str]:
    """The cases on the list, as pytest names them."""
    return LIST.read_text().splitlines()


def slow(times: pathlib.Path, limit: float) -> list[str]:
    """The cases that take longer than a limit, without the quickest of each test."""
    groups: dict[str, list[tuple[float, str]]] = collections.defaultdict(list)
    for case in ElementTree.parse(times).iter("testcase"):
        path = case.get("classname", "").replace(".", "/")
        name = f"{path}.py::{case.get('name')}"
        groups[name.partition("[")[0]].append((float(case.get("time", 0)), name))
    rest = [pair for cases in groups.values() for pair in sorted(cases)[1:]]
    return [name for seconds, name in rest if seconds > limit]


if __name__ == "__main__":
    main()
