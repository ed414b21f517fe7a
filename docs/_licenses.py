"""The licenses of all packages that eqsim and eqsim-zoo install, from their metadata."""

import importlib.metadata
import pathlib
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageMetadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


ROOT = pathlib.Path(__file__).parents[1]
# What a user installs, each with what the ones before it do not have.
INSTALLED = (
    ("eqsim", "", None),
    ("eqsim[cli]", "", "cli"),
    ("eqsim[viewer]", "", "viewer"),
    ("eqsim-zoo", "zoo", None),
    ("eqsim-zoo[export]", "zoo", "export"),
    ("eqsim-zoo[tensorboard]", "zoo", "tensorboard"),
)


def license_table() -> str:
    """Return the Markdown table of all packages.

    **Raises:** `importlib.metadata.PackageNotFoundError` if a dependency is not
    installed.
    """
    seen: dict[str, tuple[str, str]] = {}
    for label, folder, extra in INSTALLED:
        for name, metadata in _closure(_requirements(folder, extra)):
            seen.setdefault(name, (license_of(metadata), label))
    lines = ["| package | license | installed with |", "|---|---|---|"]
    lines += [
        f"| {name} | {x} | `{label}` |" for name, (x, label) in sorted(seen.items())
    ]
    return "\n".join(lines)


def license_of(metadata: PackageMetadata) -> str:
    """Return the license in the metadata of a package: an SPDX expression, or else
    classifiers, or else a name.

    **Raises:** `ValueError` if none is stated.
    """
    if metadata["License-Expression"]:
        return metadata["License-Expression"]
    classifiers = metadata.get_all("Classifier") or []
    stated = [x.split(" :: ")[-1] for x in classifiers if x.startswith("License ::")]
    if not stated and metadata["License"]:
        stated = metadata["License"].splitlines()[:1]
    if not stated:
        raise ValueError(f"The metadata of {metadata['Name']!r} state no license.")
    return ", ".join(stated)


def _requirements(folder: str, extra: str | None) -> list[Requirement]:
    text = (ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    listed = project["dependencies"]
    if extra is not None:
        listed = project["optional-dependencies"][extra]
    ours = {"eqsim", "eqsim-zoo"}
    return [x for x in map(Requirement, listed) if x.name not in ours]


def _closure(start: Iterable[Requirement]) -> Iterator[tuple[str, PackageMetadata]]:
    """Yield all packages that requirements install, with their metadata."""
    left, seen = list(start), set()
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        key = name, frozenset(requirement.extras)
        if key in seen:
            continue
        seen.add(key)
        found = importlib.metadata.distribution(name)
        yield name, found.metadata
        for other in map(Requirement, found.requires or ()):
            extras = {"", *requirement.extras}
            marker = other.marker
            if marker is None or any(marker.evaluate({"extra": x}) for x in extras):
                left.append(other)
