"""Rules of CONTRIBUTING.md that a program can check, beyond those of ruff and pyright."""

import ast
import collections
import functools
import pathlib
import re


ROOT = pathlib.Path(__file__).parents[1]
LIBRARIES = [ROOT / "eqsim", ROOT / "zoo" / "eqsim_zoo"]
FILES = sorted(file for folder in LIBRARIES for file in folder.rglob("*.py"))
PLUGINS = sorted((ROOT / "plugins").rglob("*.py"))
FUNCTION_LINES, FILE_LINES, PRIVATE_IMPORTS = 100, 1000, 40
BANNED_CALLS = {
    "super": "fields and `__init__` stand in one class; vary by wrapping",
    "hasattr": "give the type a method or a field",
    "getattr": "give the type a method or a field",
    "print": "return the information; only the command line prints",
}
# MuJoCo's structures are read by the names in a table, here and nowhere else.
READS_BY_NAME = [ROOT / "eqsim" / "io" / "mjcf"]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def parse(file):
    return ast.parse(file.read_text())


def check(find, files=FILES):
    """Fail with all problems of all files: one test per rule, not per file."""
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text}"
        for file in files
        for line, text in find(file)
    ]
    assert files and not found, "\n" + "\n".join(found)


def test_sizes_of_files():
    def find(file):
        lines = len(file.read_text().splitlines())
        if lines > FILE_LINES:
            yield 1, f"{lines} lines; at most {FILE_LINES}: split off a subject"

    check(find, [*FILES, *PLUGINS])


def test_sizes_of_functions():
    def find(file):
        for node in ast.walk(parse(file)):
            if isinstance(node, FUNCTIONS):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES:
                    text = f"`{node.name}` has {lines} lines; at most {FUNCTION_LINES}"
                    yield node.lineno, text

    check(find)


def test_banned_calls():
    def find(file):
        for node in ast.walk(parse(file)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                name = node.func.id
                allowed = (name == "print" and "_cli" in file.parts) or (
                    name == "getattr" and file.parent in READS_BY_NAME
                )
                if name in BANNED_CALLS and not allowed:
                    yield node.lineno, f"`{name}`: {BANNED_CALLS[name]}"

    check(find)


def test_annotations_stay_objects():
    """Annotations are not strings, because jaxtyping reads them."""

    def find(file):
        for node in ast.walk(parse(file)):
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                yield node.lineno, "remove this import"

    check(find)


def test_options_are_forwarded():
    """A misspelled argument is refused: `**kwargs` is passed on."""

    def find(file):
        for node in ast.walk(parse(file)):
            if isinstance(node, FUNCTIONS) and node.args.kwarg is not None:
                inside = (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
                if node.args.kwarg.arg not in inside:
                    yield node.lineno, f"`**{node.args.kwarg.arg}` is not used"

    check(find)


def test_concrete_classes_are_final():
    """A class of ours that is inherited from is called `Abstract...`."""
    nodes = (node for file in FILES for node in ast.walk(parse(file)))
    ours = {node.name for node in nodes if isinstance(node, ast.ClassDef)}

    def find(file):
        for node in ast.walk(parse(file)):
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                base = base.value if isinstance(base, ast.Subscript) else base
                name = (
                    base.attr if isinstance(base, ast.Attribute) else ast.unparse(base)
                )
                if name in ours and not name.lstrip("_").startswith("Abstract"):
                    text = f"`{node.name}` inherits from the concrete class `{name}`"
                    yield node.lineno, text

    check(find)


def test_packages_only_export():
    """An `__init__.py` holds a docstring and re-exports; that of a library also its
    version and the type-check hook."""

    def find(file):
        for node in parse(file).body:
            docstring = isinstance(node, ast.Expr) and isinstance(
                node.value, ast.Constant
            )
            setup = isinstance(node, (ast.Assign, ast.If, ast.Import))
            if isinstance(node, ast.ImportFrom) and node.level > 0:
                for alias in node.names:
                    if alias.asname != alias.name:
                        text = f"write `{alias.name} as {alias.name}`: it is public"
                        yield node.lineno, text
            elif not (docstring or (setup and file.parent in LIBRARIES)):
                yield node.lineno, "only re-exports belong here"

    check(find, [file for file in FILES if file.name == "__init__.py"])


# Imports among the modules of both libraries.


def name_of(file):
    """Return the dotted name of a module."""
    parts = file.with_suffix("").parts
    start = max(i for i, part in enumerate(parts) if part in ("eqsim", "eqsim_zoo"))
    return ".".join(part for part in parts[start:] if part != "__init__")


MODULES = {name_of(file): file for file in FILES}


@functools.cache
def imports(module):
    """Return the modules of ours that a module imports, with the lines."""
    file, found = MODULES[module], []
    package = module.split(".")
    package = package if file.name == "__init__.py" else package[:-1]
    for node in ast.walk(parse(file)):
        if not isinstance(node, ast.ImportFrom):
            continue
        above = package[: len(package) - node.level + 1] if node.level else []
        source = ".".join([*above, *filter(None, [node.module])])
        for alias in node.names:
            full = f"{source}.{alias.name}"
            target = full if full in MODULES else source
            if target in MODULES and target != module:
                found.append((node.lineno, target))
    return [*dict.fromkeys(found)]


def test_no_circular_imports():
    """Modules can be read in an order in which each uses only earlier ones. Imports of a
    package stand for imports of its modules, which the layers order."""
    graph = {
        module: {name for _, name in imports(module)}
        for module, file in MODULES.items()
        if file.name != "__init__.py"
    }
    while graph:
        last = {name for name, used in graph.items() if not used & graph.keys()}
        if not last:
            break
        graph = {name: used for name, used in graph.items() if name not in last}
    # Modules that only lead to a circle are not part of it.
    while single := {k for k in graph if not any(k in used for used in graph.values())}:
        graph = {name: used for name, used in graph.items() if name not in single}
    assert not graph, f"These modules import each other in a circle: {sorted(graph)}."


def test_names_of_modules_are_unique():
    for library in ("eqsim", "eqsim_zoo"):
        count = collections.Counter(
            name.rpartition(".")[2] for name in MODULES if name.split(".")[0] == library
        )
        twice = [name for name, number in count.items() if number > 1]
        assert not twice, f"Several modules of {library} are called {twice}."


# Imports of another package's private module that have a reason.
ALLOWED: set[tuple[str, str]] = set()


def test_private_modules_are_private():
    """A module whose name begins with an underscore is imported only by modules of its
    folder and of folders below."""
    found = []
    for module in MODULES:
        for line, target in imports(module):
            parts = target.split(".")
            private = [i for i, part in enumerate(parts) if part.startswith("_")]
            home = parts[: private[0]] if private else []
            if (
                module.split(".")[: len(home)] != home
                and (module, target) not in ALLOWED
            ):
                found.append(f"{MODULES[module].relative_to(ROOT)}:{line}: {target}")
    assert len(ALLOWED) <= PRIVATE_IMPORTS and not found, "\n" + "\n".join(found)


def test_example_plugin_uses_public_names():
    """The plugin that third parties copy imports no private module or name."""

    def find(file):
        for node in ast.walk(parse(file)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                names = [ast.unparse(node)]
            for name in names:
                if name.startswith(("eqsim.", "eqsim_zoo.")) and "._" in name:
                    yield node.lineno, name

    check(find, [f for f in PLUGINS if f.parent.name == "eqsim_example"])


def test_no_paths_of_one_machine():
    folders = "eqsim zoo plugins tests benchmarks docs .ci".split()
    inside = [f for folder in folders for f in (ROOT / folder).rglob("*")]
    suffixes = {"", ".py", ".md", ".toml", ".txt", ".json", ".html", ".yml"}
    pattern = re.compile(r"(?<![\w.:/*-])/(home|root|Users|tmp|work)/\w")

    def find(file):
        for i, line in enumerate(file.read_text(errors="ignore").splitlines(), 1):
            if pattern.search(line):
                yield i, line

    texts = [f for f in [*ROOT.iterdir(), *inside] if f.suffix in suffixes]
    check(find, [f for f in texts if f.is_file() and f.name != ".git"])
