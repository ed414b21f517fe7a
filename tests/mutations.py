"""Break the code at random places, one at a time, and count how many breaks tests find.

    python tests/mutations.py --seed 0 --count 40 [--tests PATHS] [--seconds 900]

A mutation replaces one operator, sign, comparison or index of eqsim or eqsim_zoo in a
copy of the tree. The quick tests run until one fails: first those of the module's folder,
then those that import its package, then the rest. The same seed gives the same mutations
as long as the code is the same.
"""

import argparse
import ast
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple


ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = "eqsim", "zoo/eqsim_zoo"
LEFT_OUT = "_cli", "testing"  # Their mutations change prints and checks.
BINARY = {"+": "-", "-": "+", "*": "/", "/": "*", "@": "*", "//": "*", "%": "*"}
BINARY |= {"**": "*", "&": "|", "|": "&", "<<": ">>", ">>": "<<"}
COMPARED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
COMPARED |= {"is not": "is", "is": "is not", "not in": "in", "in": "not in"}
KERNELS = ".kernels"
# As in the target `test` of the Makefile.
QUICK = {
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1",
    "EQSIM_KERNELS_LEVEL": "0",
}


class Mutation(NamedTuple):
    """The replacement of `old` by `new` at an offset of a file."""

    file: str
    line: int
    offset: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: `{self.old}` -> `{self.new or 'nothing'}`"


class Places(ast.NodeVisitor):
    """All mutations of a file. Types, error messages and their conditions are skipped."""

    def __init__(self, file: str, text: str):
        self.file, self.text, self.found = file, text.encode(), []
        self.starts = [0]
        for line in self.text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def start(self, node) -> int:
        return self.starts[node.lineno - 1] + node.col_offset

    def end(self, node) -> int:
        return self.starts[node.end_lineno - 1] + node.end_col_offset

    def add(self, node, offset: int, old: str, new: str) -> None:
        line = node.lineno + self.text[self.start(node) : offset].count(b"\n")
        self.found.append(Mutation(self.file, line, offset, old, new))

    def between(self, node, left, right, table: dict[str, str]) -> None:
        """Replace the operator between two operands."""
        first, last = self.end(left), self.start(right)
        space = self.text[first:last].decode()
        found = re.search(r"is\s+not|not\s+in|is|in|[-+*/@%&|<>=!]+", space)
        if found and found[0] in table:
            offset = first + len(space[: found.start()].encode())
            self.add(node, offset, found[0], table[found[0]])

    def visit_BinOp(self, node):
        text = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
        if not text and not isinstance(node.left, ast.JoinedStr):
            self.between(node, node.left, node.right, BINARY)
        self.generic_visit(node)

    def visit_Compare(self, node):
        for left, right in zip([node.left, *node.comparators], node.comparators):
            self.between(node, left, right, COMPARED)
        self.generic_visit(node)

    def visit_UnaryOp(self, node):
        if isinstance(node.op, ast.USub | ast.Not | ast.Invert):
            old = {ast.USub: "-", ast.Not: "not", ast.Invert: "~"}[type(node.op)]
            self.add(node, self.start(node), old, "")
        self.generic_visit(node)

    def visit_Subscript(self, node):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for part in parts:
            if isinstance(part, ast.Constant) and type(part.value) is int:
                new = str(part.value + 1 if part.value < 1 else part.value - 1)
                self.add(part, self.start(part), str(part.value), new)
        self.generic_visit(node)

    def visit_If(self, node):
        if isinstance(node.body[-1], ast.Raise):  # Error paths are no physics.
            for child in node.orelse:
                self.visit(child)
        else:
            self.generic_visit(node)

    def visit_FunctionDef(self, node):
        if not node.name.lstrip("_").startswith(("check", "describe", "explain")):
            for child in node.body:
                self.visit(child)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def skip(self, node):
        """Leave out what is not executed, or what only describes an error."""

    visit_Raise = visit_Assert = visit_JoinedStr = visit_Import = visit_ImportFrom = (
        skip
    )


def mutations() -> list[Mutation]:
    """Return all mutations of both packages."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name != "__init__.py" and not {*path.parts} & {*LEFT_OUT}:
                text = path.read_text()
                places = Places(str(path.relative_to(ROOT)), text)
                places.visit(ast.parse(text))
                found += places.found
    return found


def stages(file: str, only: list[str]) -> list[list[str]]:
    """Return the tests of a module: of its folder, of its package, and all others."""
    files = [f for f in (ROOT / "tests").rglob("test_*.py")]
    names = sorted(str(f.relative_to(ROOT)) for f in files)
    if only:
        return [[f for f in names if f.startswith(tuple(only))]]
    *_, library, part = file.removesuffix(".py").split("/")[: 3 if "zoo" in file else 2]
    plain = part.lstrip("_")
    mirrored = f"tests/{plain}/", f"tests/test_{plain}"
    imported = re.compile(rf"\b{library}\.{part}\b|from {library} import .*\b{plain}\b")
    if library == "eqsim_zoo":
        mirrored = (f"tests/zoo/{plain}", f"tests/zoo/test_{plain}", "tests/zoo/")
    first = [f for f in names if f.startswith(mirrored)]
    near = [f for f in names if imported.search((ROOT / f).read_text())]
    near = [f for f in near if f not in first]
    rest = [f for f in names if f not in first and f not in near]
    return [stage for stage in (first, near, rest) if stage]


def run(tree: pathlib.Path, tests: list[str], seconds: float, workers: int) -> str:
    """Run tests in a tree until one fails: "passed", the failure, or "time"."""
    paths = os.pathsep.join(map(str, (tree, tree / "zoo")))
    environment = os.environ | QUICK | {"PYTHONPATH": paths}
    environment["EQSIM_KERNELS_CACHE"] = str(tree / KERNELS)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow"]
    command += ["-p", "no:cacheprovider", "-n", str(workers), "--dist", "worksteal"]
    process = subprocess.Popen(
        [*command, *tests],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "time"
    if process.returncode in (0, 5):  # 5: all tests of these files are slow.
        return "passed"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return failed[1] if failed else output.strip().splitlines()[-1]


def judge(tree: pathlib.Path, mutation: Mutation, options) -> str:
    """Return how the tests judge a mutation, and leave the tree as it was."""
    path = tree / mutation.file
    before = path.read_bytes()
    end = mutation.offset + len(mutation.old.encode())
    path.write_bytes(before[: mutation.offset] + mutation.new.encode() + before[end:])
    until = time.monotonic() + options.seconds
    try:
        for tests in stages(mutation.file, options.tests):
            left = until - time.monotonic()
            found = run(tree, tests, left, options.workers) if left > 0 else "time"
            if found == "time":
                return f"survived {options.seconds:.0f} s"
            if found != "passed":
                return f"killed by {found}"
        return "survived"
    finally:
        path.write_bytes(before)
        if "_kernels" in mutation.file:
            # A broken compiler must not leave kernels to the next mutation.
            shutil.rmtree(tree / KERNELS, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--tests", nargs="*", default=[], help="folders and files")
    parser.add_argument("--seconds", type=float, default=900.0, help="per mutation")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    chosen = random.Random(options.seed).sample(mutations(), options.count)
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True)
    killed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        for name in listed.splitlines():
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, tree / name)
        for number, mutation in enumerate(chosen):
            start = time.monotonic()
            verdict = judge(tree, mutation, options)
            killed += verdict.startswith("killed")
            took = f"{time.monotonic() - start:.0f} s"
            print(f"{number}\t{mutation}\t{verdict}\t{took}", flush=True)
    print(f"{killed} of {options.count} killed")


if __name__ == "__main__":
    main()
