"""What `make release` checks, and the tables that come from metadata."""

import dataclasses
import importlib
import io
import pathlib
import sys
import tarfile
import zipfile

import pytest


HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]


def module(name, folder=HERE):
    """Import a script from its folder."""
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


distributions = module("distributions")
ALL = distributions.distributions()


@pytest.mark.parametrize("one", ALL.values(), ids=list(ALL))
def test_licenses_are_equal(one):
    """Each folder has its own copy, because a link would point outside of an archive."""
    text = (ROOT / one.folder / "LICENSE").read_bytes()
    assert text == (ROOT / "LICENSE").read_bytes()


def test_every_distribution_has_a_smoke_test():
    assert set(module("smoke").SMOKE) == set(ALL)


def test_references_to_extras_exist():
    archives = module("archives")
    assert archives.check_extras(ALL) == []
    project = {"dependencies": ["eqsim[renderer]>=0.1"], "name": "other"}
    other = distributions.Distribution(pathlib.Path("other"), {"project": project})
    found = archives.check_extras(ALL | {"other": other})
    assert found == ["other asks for eqsim[renderer], which is unknown"]


METADATA = """Metadata-Version: 2.4
Name: eqsim-example
Version: {version}
Summary: {summary}
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.11
Description-Content-Type: text/markdown
{required}
Provides-Extra: test
"""


def wheel_of(one, folder, drop=None, version=None, extra=None):
    path = folder / "x.whl"
    info, project = f"{one.stem}.dist-info", one.project
    required = "\n".join(f"Requires-Dist: {x}" for x in one.requirements())
    points = ""
    for group, table in project["entry-points"].items():
        lines = "".join(f"{name} = {target}\n" for name, target in table.items())
        points += f"[{group}]\n{lines}\n"
    metadata = METADATA.format(
        version=version or project["version"],
        summary=project["description"],
        required=required,
    )
    files = {
        f"{info}/METADATA": metadata,
        f"{info}/entry_points.txt": points,
        f"{info}/licenses/LICENSE": "",
        "eqsim_example/py.typed": "",
    }
    files |= {extra: ""} if extra else {}
    with zipfile.ZipFile(path, "w") as archive:
        for name in set(files) - {drop}:
            archive.writestr(name, files[name])
    return path


@pytest.mark.parametrize(
    "change, problem",
    (
        ({}, None),
        ({"drop": "eqsim_example/py.typed"}, "py.typed is missing"),
        ({"extra": "tests/test_env.py"}, "tests does not belong in a wheel"),
        ({"version": "0.2"}, "Version is '0.2'"),
        ({"drop": "eqsim_example-0.1.0.dist-info/entry_points.txt"}, "entry points"),
    ),
    ids=lambda x: str(x)[:30],
)
def test_a_wheel_is_checked(change, problem, tmp_path):
    one = ALL["eqsim-example"]
    found = module("archives").check_wheel(wheel_of(one, tmp_path, **change), one)
    assert len(found) == (problem is not None) and (problem or "") in "".join(found)


def test_a_source_distribution_is_checked(tmp_path):
    one = ALL["eqsim-example"]
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        for name in ("README.md", "PKG-INFO", "pyproject.toml", "tests/__pycache__/x"):
            archive.addfile(tarfile.TarInfo(f"{one.stem}/{name}"), io.BytesIO())
        link = tarfile.TarInfo(f"{one.stem}/LICENSE")
        link.type, link.linkname = tarfile.SYMTYPE, "../LICENSE"
        archive.addfile(link)
    found = module("archives").check_sdist(tmp_path / "x.tar.gz", one)
    assert found == ["tests/__pycache__/x is a cache", "LICENSE is not a plain file"]


def test_pinned_versions_are_within_the_bounds():
    """A dependency without a lower bound is an error."""
    version = pytest.importorskip("packaging.version").Version
    lower_bounds, names = module("bounds").lower_bounds, distributions.normalized
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    pins = {names(line.split("==")[0]): line.split("==")[1] for line in lines}
    bounds = lower_bounds(list(ALL.values()))
    assert len(bounds) > 20
    for name, bound in bounds.items():
        pin = pins.get(names(name))
        assert pin is None or version(pin) >= version(bound), (name, pin, bound)
    project = {"dependencies": ["jax"]}
    table = {"project": project, "build-system": {"requires": []}}
    with pytest.raises(ValueError, match="`jax` has no lower bound"):
        lower_bounds([distributions.Distribution(pathlib.Path("x"), table)])


def test_the_table_of_licenses_has_the_dependencies():
    """Each package, with a license that is stated in its metadata."""
    table = module("_licenses", ROOT / "docs").license_table()
    assert all(f"\n| {name} | " in table for name in ("jax", "equinox", "mujoco"))


def test_hashes_change_with_content(tmp_path):
    hashes = module("release").hashes
    (tmp_path / "a.whl").write_bytes(b"1")
    (tmp_path / "notes.txt").write_bytes(b"1")
    first = hashes(tmp_path)
    (tmp_path / "a.whl").write_bytes(b"2")
    assert list(first) == ["a.whl"] and hashes(tmp_path) != first


def test_an_older_bound_is_overruled():
    """Of several bounds for one package the largest holds."""
    lower_bounds = module("bounds").lower_bounds
    one = ALL["eqsim-zoo"]
    project = dict(one.project, dependencies=["numpy>=2.10", "numpy>=2.9"])
    table = dict(one.table, project=project)
    changed = dataclasses.replace(one, table=table)
    assert lower_bounds([changed])["numpy"] == "2.10"
