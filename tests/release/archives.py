"""Checks of wheels and source distributions."""

import configparser
import email
import pathlib
import tarfile
import zipfile
from typing import Any

from distributions import Distribution, normalized, requirement_name


def check_wheel(path: pathlib.Path, one: Distribution) -> list[str]:
    """Return what is wrong with a wheel: files that are missing or that do not belong
    there, and metadata that differ from `pyproject.toml`."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        info = f"{one.stem}.dist-info"
        expected = {f"{info}/licenses/LICENSE", f"{info}/METADATA"}
        expected |= {f"{package}/py.typed" for package in one.packages}
        problems = [f"{name} is missing" for name in sorted(expected - names)]
        tops = {name.split("/")[0] for name in names} - {*one.packages, info}
        problems += [f"{name} does not belong in a wheel" for name in sorted(tops)]
        if not problems:
            metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
            problems += _check_metadata(metadata, one)
            points = one.project.get("entry-points", {})
            scripts = one.project.get("scripts")
            points = points | ({"console_scripts": scripts} if scripts else {})
            found = configparser.ConfigParser(delimiters=("=",))
            found.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
            if f"{info}/entry_points.txt" in names:
                found.read_string(archive.read(f"{info}/entry_points.txt").decode())
            if {group: dict(found[group]) for group in found.sections()} != points:
                problems.append("entry points differ from pyproject.toml")
    return problems


def check_sdist(path: pathlib.Path, one: Distribution) -> list[str]:
    """Return what is wrong with a source distribution: files that are missing, links,
    and caches."""
    with tarfile.open(path) as archive:
        members = {m.name.removeprefix(f"{one.stem}/"): m for m in archive}
    expected = {"LICENSE", "README.md", "PKG-INFO", "pyproject.toml"}
    problems = [f"{name} is missing" for name in sorted(expected - set(members))]
    # Tests of the zoo lie with those of eqsim.
    if one.name != "eqsim-zoo" and not any(n.startswith("tests/") for n in members):
        problems.append("there are no tests")
    if "confcutdir" in str(one.table["tool"]) and "conftest.py" not in members:
        problems.append("the settings of the tests, conftest.py, are missing")
    for name, member in members.items():
        if not member.isfile():
            problems.append(f"{name} is not a plain file")
        if "__pycache__" in name or name.endswith(".pyc"):
            problems.append(f"{name} is a cache")
    return problems


def _check_metadata(found: Any, one: Distribution) -> list[str]:
    project, problems = one.project, []
    for field, expected in (
        ("Name", one.name),
        ("Version", project["version"]),
        ("Summary", project["description"]),
        ("License-Expression", "Apache-2.0"),
        ("License-File", "LICENSE"),
        ("Requires-Python", project["requires-python"]),
        ("Description-Content-Type", "text/markdown"),
    ):
        if found[field] != expected:
            problems.append(f"{field} is {found[field]!r}, not {expected!r}")
    required = {normalized(requirement_name(x)) for x in one.requirements()}
    # An extra that asks for another one of the same package is resolved.
    required.discard(normalized(one.name))
    listed = {
        normalized(requirement_name(x)) for x in found.get_all("Requires-Dist") or ()
    }
    if required != listed:
        problems.append(f"Requires-Dist differs: {sorted(required ^ listed)}")
    extras = set(project.get("optional-dependencies", {}))
    if set(found.get_all("Provides-Extra") or ()) != extras:
        problems.append("Provides-Extra differs from pyproject.toml")
    return problems


def check_extras(all_of_them: dict[str, Distribution]) -> list[str]:
    """Return references to extras of our distributions that do not exist, for which pip
    only prints a warning."""
    problems = []
    for one in all_of_them.values():
        for requirement in one.requirements():
            name = requirement_name(requirement)
            rest = requirement.removeprefix(name)
            if name not in all_of_them or not rest.startswith("["):
                continue
            known = set(all_of_them[name].project.get("optional-dependencies", {}))
            asked = {x.strip() for x in rest[1 : rest.index("]")].split(",")}
            for extra in sorted(asked - known):
                problems.append(
                    f"{one.name} asks for {name}[{extra}], which is unknown"
                )
    return problems
