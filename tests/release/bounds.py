"""Test the oldest or the newest versions of dependencies that `pyproject.toml` allows.

python tests/release/bounds.py oldest [--python python3.12]
python tests/release/bounds.py newest [--without eqsim-torchrl]

`oldest` installs each direct dependency at its lower bound (the largest one, where
distributions state several), `newest` installs the newest versions. All distributions
are installed in one fresh environment, where the smoke tests of `smoke.py` and a subset
of the tests run. Needs `packaging`, which `make release` installs too.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from distributions import Distribution, distributions, ROOT, WITHOUT_DEPENDENCIES
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version


# Tests that use each dependency, a few minutes in all.
TESTS = """
    tests/test_import_is_silent.py tests/test_registry.py tests/test_rollout.py
    tests/test_batching.py tests/test_typecheck.py tests/spatial tests/io/test_save.py
    tests/io/mjcf/test_load.py tests/kernels/test_elementwise.py
    tests/dynamics/test_dynamics.py tests/pipelines/test_step.py tests/control/test_lqr.py
    tests/identify/test_fit.py tests/render tests/envs/test_gymnasium.py
    tests/cli/test_cli.py tests/cli/test_plugins.py tests/viewer/test_session.py
    tests/zoo/test_ppo.py tests/zoo/test_checkpoint.py tests/zoo/test_metrics.py
""".split()
EXTRAS = {
    "eqsim": "test",
    "eqsim-adapters": "brax,dm-env,test",
    "eqsim-dmc": "test",
    "eqsim-evosax": "test",
    "eqsim-example": "test",
    "eqsim-gymnasium": "test",
    "eqsim-locomotion": "test",
    "eqsim-mjx": "test",
    "eqsim-playground": "test",
    "eqsim-torchrl": "test",
}


def lower_bounds(chosen: list[Distribution]) -> dict[str, str]:
    """Return the oldest version of each direct dependency.

    **Raises:** `ValueError` for a dependency without a lower bound.
    """
    ours, found = set(distributions()), {}
    texts = [text for one in chosen for text in one.requirements()]
    texts += [x for one in chosen for x in one.table["build-system"]["requires"]]
    for requirement in map(Requirement, texts):
        name = canonicalize_name(requirement.name)
        if name in ours:
            continue
        bounds = [
            x.version for x in requirement.specifier if x.operator in (">=", "==")
        ]
        if not bounds:
            raise ValueError(f"`{requirement}` has no lower bound: state one.")
        found[name] = max([*bounds, *filter(None, [found.get(name)])], key=Version)
    return found


def install(
    chosen: list[Distribution], python: str, work: pathlib.Path, oldest: bool
) -> pathlib.Path:
    """Install distributions and what they need; return the folder of programs."""
    subprocess.run([python, "-m", "venv", work / "venv"], check=True)
    bin = work / "venv" / "bin"
    pip = [bin / "python", "-m", "pip", "--disable-pip-version-check", "install"]
    pip += ["--quiet"]
    environment = dict(os.environ)
    if oldest:
        bounds = lower_bounds(chosen)
        lines = [f"{name}=={version}\n" for name, version in bounds.items()]
        (work / "oldest.txt").write_text("".join(lines), encoding="utf-8")
        # By a variable and not by an option, it holds for tools that build wheels too.
        environment["PIP_CONSTRAINT"] = str(work / "oldest.txt")
    places = []
    for one in chosen:
        extras = f"[{EXTRAS[one.name]}]" if one.name in EXTRAS else ""
        places.append(f"{ROOT / one.folder}{extras}")
    subprocess.run([*pip, *places], check=True, env=environment)
    subprocess.run([bin / "python", "-m", "pip", "check"], check=True)
    # After the check, which would miss their dependencies.
    for one in (x for x in chosen if x.name in WITHOUT_DEPENDENCIES):
        extra = [*pip, "--no-deps", WITHOUT_DEPENDENCIES[one.name]]
        subprocess.run(extra, check=True, env=environment)
    return bin


def run(
    chosen: list[Distribution], bin: pathlib.Path, work: pathlib.Path, workers: int
) -> list[str]:
    """Run smoke tests and tests; return the names of those that fail."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["PATH"] = f"{bin}{os.pathsep}{environment['PATH']}"
    script, failed = shutil.copy(ROOT / "tests" / "release" / "smoke.py", work), []
    # The smoke test of the example removes it, so it comes last.
    for one in sorted(chosen, key=lambda x: x.name == "eqsim-example"):
        place = work / one.name
        place.mkdir()
        command = [bin / "python", "-I", script, one.name]
        if subprocess.run(command, cwd=place, env=environment).returncode:
            failed.append(f"smoke test of {one.name}")
    # A newer version may warn of what it is going to change, which is no failure here.
    command = [bin / "python", "-P", "-m", "pytest", "-q", "-m", "not slow"]
    command += ["-n", str(workers), "-W", "default", *TESTS]
    if subprocess.run(command, cwd=ROOT, env=environment).returncode:
        failed.append("tests")
    return failed


_VERSIONS = """
import importlib.metadata, sys
for name in sys.argv[1:]:
    print(f"{name}=={importlib.metadata.version(name)}")
"""


def main() -> None:
    """Install, print versions, and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", choices=("oldest", "newest"))
    parser.add_argument("--python", default=sys.executable, help="to make environments")
    names = list(distributions())
    parser.add_argument("--without", nargs="+", choices=names[2:], default=[])
    parser.add_argument("--workers", type=int, default=2, help="of pytest")
    options = parser.parse_args()
    chosen = [x for x in distributions().values() if x.name not in options.without]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        bin = install(chosen, options.python, work, options.versions == "oldest")
        asked = [bin / "python", "-c", _VERSIONS]
        direct = {
            canonicalize_name(Requirement(text).name)
            for one in chosen
            for text in one.requirements(extras=False)
        }
        subprocess.run([asked[0], "--version"], check=True)
        subprocess.run([*asked, *sorted(direct)], check=True)
        failed = run(chosen, bin, work, options.workers)
    if failed:
        sys.exit(f"With the {options.versions} versions: {', '.join(failed)} failed.")


if __name__ == "__main__":
    main()
