"""Build, check and try all distributions.

python tests/release/release.py [--out out/release] [--only eqsim eqsim-example]

Sources are copied twice, to two folders, and built twice; the files must be equal byte
for byte. Wheels are built from the source distributions. Each wheel is then installed in
a fresh environment outside of the repository, where `smoke.py` runs. Needs `build`,
`hatchling` and `twine`, which `make release` installs.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from archives import check_extras, check_sdist, check_wheel
from distributions import Distribution, distributions, ROOT, WITHOUT_DEPENDENCIES


# What a smoke test needs besides the distribution: extras, other distributions of ours.
EXTRAS = {"eqsim": "[cli]", "eqsim-adapters": "[dm-env]", "eqsim-dmc": "[suite]"}
NEEDS = {"eqsim-evosax": ["eqsim-zoo"], "eqsim-example": ["eqsim-zoo"]}


class ReleaseError(Exception):
    """Failure of a build, a check or a smoke test."""


def run(command: list, **options) -> str:
    """Run a command and return its output; raise `ReleaseError` with the output if it
    fails."""
    done = subprocess.run(
        [str(x) for x in command],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **options,
    )
    if done.returncode:
        words = " ".join(map(str, command))
        raise ReleaseError(f"`{words}` failed ({done.returncode}):\n{done.stdout}")
    return done.stdout


def copy_sources(target: pathlib.Path) -> None:
    """Copy all files that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    for name in filter(None, run(command, cwd=ROOT).split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)


def build(chosen: list[Distribution], out: pathlib.Path, work: pathlib.Path) -> None:
    """Write a source distribution and a wheel of each distribution to `out`."""
    copy_sources(work)
    stamp = run(["git", "log", "-1", "--format=%ct"], cwd=ROOT).strip()
    environment = os.environ | {"SOURCE_DATE_EPOCH": stamp}
    for one in chosen:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out]
        run([*command, work / one.folder], env=environment)


def hashes(folder: pathlib.Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a folder."""
    files = sorted(f for f in folder.iterdir() if f.suffix in (".whl", ".gz"))
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def check(chosen: list[Distribution], out: pathlib.Path) -> None:
    """Check content and metadata of the files in `out`."""
    problems = check_extras(distributions())
    for one in chosen:
        wheel, sdist = f"{one.stem}-py3-none-any.whl", f"{one.stem}.tar.gz"
        found = check_wheel(out / wheel, one)
        problems += [f"{wheel}: {problem}" for problem in found]
        found = check_sdist(out / sdist, one)
        problems += [f"{sdist}: {problem}" for problem in found]
    if problems:
        raise ReleaseError("\n".join(problems))
    run([sys.executable, "-m", "twine", "check", "--strict", *out.glob("*.[wg]*")])


def try_out(one: Distribution, out: pathlib.Path, python: str) -> None:
    """Install a wheel in a fresh environment outside of the repository, and run its
    smoke test there."""
    every = distributions()
    # By path: a package of the same name in a registry must not be installed instead.
    wheels = [
        f"{out / every[name].stem}-py3-none-any.whl{EXTRAS.get(name, '')}"
        for name in sorted({"eqsim", one.name, *NEEDS.get(one.name, ())})
    ]
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        run([python, "-m", "venv", work / "venv"])
        bin = work / "venv" / "bin"
        pip = [bin / "python", "-m", "pip", "--disable-pip-version-check", "install"]
        pip += ["--quiet", "--constraint", ROOT / "constraints.txt"]
        run([*pip, *wheels])
        run([bin / "python", "-m", "pip", "check"])
        # After the check, which would miss its dependencies.
        if one.name in WITHOUT_DEPENDENCIES:
            run([*pip, "--no-deps", WITHOUT_DEPENDENCIES[one.name]])
        script = shutil.copy(ROOT / "tests" / "release" / "smoke.py", work)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        environment["PATH"] = f"{bin}{os.pathsep}{environment['PATH']}"
        # Isolated: neither the working directory nor PYTHONPATH is searched.
        run([bin / "python", "-I", script, one.name], cwd=work, env=environment)


def main() -> None:
    """Build twice, compare, check, install and run; write hashes."""
    names = list(distributions())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out" / "release")
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--python", default=sys.executable, help="to make environments")
    options = parser.parse_args()
    out = options.out.absolute()
    # Those that a smoke test installs are built too.
    needed = {"eqsim", *options.only}.union(*(NEEDS.get(x, ()) for x in options.only))
    chosen = [one for name, one in distributions().items() if name in needed]
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as two:
        second = pathlib.Path(two)
        build(chosen, out, pathlib.Path(first))
        build(chosen, second / "out", second / "another" / "folder")
        found, again = hashes(out), hashes(second / "out")
    differ = [name for name in found if found[name] != again.get(name)]
    if differ or len(found) != 2 * len(chosen):
        raise ReleaseError(
            f"Two builds differ in {', '.join(differ) or 'their names'}."
        )
    lines = [f"{digest}  {name}\n" for name, digest in found.items()]
    (out / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    print(f"built {len(found)} files twice, byte for byte equal", flush=True)
    check(chosen, out)
    print("content and metadata are as pyproject.toml says", flush=True)
    for one in (x for x in chosen if x.name in options.only):
        start = time.perf_counter()
        try_out(one, out, options.python)
        seconds = time.perf_counter() - start
        print(f"{one.name}: installed and run in {seconds:.0f} s", flush=True)
    print(f"wrote {out}")


if __name__ == "__main__":
    try:
        main()
    except ReleaseError as error:
        sys.exit(f"release: {error}")
