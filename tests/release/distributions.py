"""The distributions of this repository: eqsim, eqsim-zoo and the plugins."""

import dataclasses
import pathlib
import re
import tomllib
from typing import Any


ROOT = pathlib.Path(__file__).parents[2]
# The model files alone are used: MuJoCo Playground asks for much that is not needed.
WITHOUT_DEPENDENCIES = {"eqsim-playground": "playground"}


@dataclasses.dataclass(frozen=True)
class Distribution:
    """One folder with a `pyproject.toml`.

    - `folder`: folder, relative to the root of the repository.
    - `table`: content of `pyproject.toml`.
    """

    folder: pathlib.Path
    table: dict[str, Any]

    @property
    def project(self) -> dict[str, Any]:
        """The table `[project]`."""
        return self.table["project"]

    @property
    def name(self) -> str:
        """The name, such as `eqsim-zoo`."""
        return self.project["name"]

    @property
    def stem(self) -> str:
        """The beginning of the names of its files, such as `eqsim_zoo-0.1.0`."""
        return f"{normalized(self.name)}-{self.project['version']}"

    @property
    def packages(self) -> list[str]:
        """The import packages in its wheel."""
        return self.table["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    def requirements(self, extras: bool = True) -> list[str]:
        """Return the requirements, with those of all extras by default."""
        found = list(self.project["dependencies"])
        if extras:
            for listed in self.project.get("optional-dependencies", {}).values():
                found += listed
        return found


def normalized(name: str) -> str:
    """Return a name of a distribution as it is written in file names."""
    return re.sub(r"[-_.]+", "_", name).lower()


def requirement_name(requirement: str) -> str:
    """Return the name of a distribution in a requirement, without extras and bounds."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    if found is None:
        raise ValueError(f"{requirement!r} does not begin with a name.")
    return found[0]


def distributions() -> dict[str, Distribution]:
    """Return all distributions by name; a distribution comes after those it needs."""
    folders = [ROOT, ROOT / "zoo", *sorted((ROOT / "plugins").glob("eqsim-*"))]
    found = {}
    for folder in folders:
        table = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        one = Distribution(folder.relative_to(ROOT), table)
        found[one.name] = one
    return found
