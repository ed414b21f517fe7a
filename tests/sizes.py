"""Print the size of the project: files, lines, imports, public names, words.

    python tests/sizes.py                     the checkout that holds this file
    python tests/sizes.py --root OTHER        another checkout, such as an older commit
    python tests/sizes.py --tests             also CPU minutes of the quick tests

Lines are counted as they are formatted. An import is private if it names a module whose
name begins with an underscore, from outside of the package that holds this module.
"""

import argparse
import ast
import pathlib
import resource
import subprocess
import sys


TREES = ("eqsim", "zoo/eqsim_zoo", "plugins", "benchmarks", "tests", "docs")
PRODUCTS = ("eqsim", "zoo/eqsim_zoo")


def tracked(root: pathlib.Path, *patterns: str) -> list[pathlib.Path]:
    """Files under version control that match patterns, as paths relative to `root`."""
    command = ["git", "ls-files", "--", *patterns]
    out = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    files = [pathlib.Path(line) for line in out.stdout.splitlines()]
    return [file for file in files if (root / file).exists()]


def module_name(file: pathlib.Path) -> str:
    """The dotted name by which a file of a product is imported."""
    parts = file.with_suffix("").parts
    parts = parts[parts.index("eqsim_zoo") :] if "eqsim_zoo" in parts else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(node: ast.ImportFrom, package: str) -> list[str]:
    """Absolute names that `from ... import ...` may name: the module, and its members."""
    if node.level:
        parts = package.split(".")
        parts = parts[: len(parts) - node.level + 1]
        base = ".".join([*parts, node.module] if node.module else parts)
    else:
        base = node.module or ""
    return [base, *(f"{base}.{alias.name}" for alias in node.names)]


def private_imports(root: pathlib.Path, modules: set[str], files) -> list[str]:
    """Imports of private modules of another package, as `file: module`."""
    found = []
    for file in files:
        name = module_name(file)
        inner = file.name == "__init__.py"
        package = name if inner else name.rpartition(".")[0]
        for node in ast.walk(ast.parse((root / file).read_text())):
            if not isinstance(node, ast.ImportFrom):
                continue
            for module in imported_modules(node, package):
                owner, _, last = module.rpartition(".")
                private = module in modules and last.startswith("_")
                if private and not f"{package}.".startswith(f"{owner}."):
                    found.append(f"{file}: {module}")
    return found


def public_names(root: pathlib.Path, product: str) -> int:
    """Names that public packages export: `from ... import name as name`."""
    total = 0
    for file in tracked(root, f"{product}/**/__init__.py", f"{product}/__init__.py"):
        if any(part.startswith("_") for part in file.parts[:-1]):
            continue
        for node in ast.walk(ast.parse((root / file).read_text())):
            if isinstance(node, ast.ImportFrom):
                total += sum(
                    alias.asname == alias.name and not alias.name.startswith("_")
                    for alias in node.names
                )
    return total


def words(root: pathlib.Path) -> int:
    """Words of all pages of text. What has no letter or digit, like the bars of tables, is
    no word."""
    pages = [(root / file).read_text().split() for file in tracked(root, "*.md")]
    return sum(any(map(str.isalnum, word)) for page in pages for word in page)


def print_sizes(root: pathlib.Path):
    """Print one table of files and lines, and the other numbers below it."""
    print(f"{'':16}{'files':>8}{'lines':>10}{'median':>8}")
    all_lines = 0
    for tree in TREES:
        files = tracked(root, f"{tree}/*.py")
        lines = sorted(len((root / file).read_text().splitlines()) for file in files)
        all_lines += sum(lines)
        middle = lines[len(lines) // 2]
        print(f"{tree:16}{len(files):>8}{sum(lines):>10,}{middle:>8}")
    print(f"{'all':16}{'':>8}{all_lines:>10,}")
    sources = [file for tree in PRODUCTS for file in tracked(root, f"{tree}/*.py")]
    modules = {module_name(file) for file in sources}
    stems = [f.stem for f in sources if not f.stem.startswith("__")]
    print(f"names of modules that occur twice: {len(stems) - len(set(stems))}")
    for tree in (*PRODUCTS, "plugins", "benchmarks", "tests"):
        found = private_imports(root, modules, tracked(root, f"{tree}/*.py"))
        print(f"imports of private modules of other packages, {tree}: {len(found)}")
    for product in PRODUCTS:
        print(f"public names, {product}: {public_names(root, product)}")
    print(f"words of text: {words(root):,}")


def print_cpu_minutes(root: pathlib.Path):
    """Run `make test`, and print its CPU minutes."""
    status = subprocess.run(["make", "test"], cwd=root).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = (used.ru_utime + used.ru_stime) / 60
    print(f"CPU minutes of `make test` (exit status {status}): {minutes:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = pathlib.Path(__file__).parents[1]
    parser.add_argument("--root", type=pathlib.Path, default=default)
    parser.add_argument("--tests", action="store_true")
    arguments = parser.parse_args()
    print_sizes(arguments.root)
    if arguments.tests:
        print_cpu_minutes(arguments.root)


if __name__ == "__main__":
    sys.exit(main())
