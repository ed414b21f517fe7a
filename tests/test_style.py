"""What CONTRIBUTING.md asks of the code, as far as a program can see it."""

import ast
import functools
import io
import pathlib
import re
import tokenize

import pytest


ROOT = pathlib.Path(__file__).parents[1]
LIBRARIES = [ROOT / "eqsim", ROOT / "zoo" / "eqsim_zoo"]
FILES = sorted(file for folder in LIBRARIES for file in folder.rglob("*.py"))
FUNCTION_LINES, ENTRY_POINT_LINES, FILE_LINES = 100, 100, 1000
BANNED_CALLS = {
    "super": "fields and `__init__` stand in one class; vary by wrapping",
    "hasattr": "give the type a method or a field",
    "getattr": "give the type a method or a field",
    "print": "return what there is to know; only the command line prints",
}
# Texts of these packages begin with a noun or a verb and use the terms of the field.
PLAIN = [f.parent for f in sorted((ROOT / "eqsim").glob("*/__init__.py"))]
PLAIN += [
    ROOT / "zoo" / "eqsim_zoo" / name
    for name in "_cli agents blocks data runs skills training vision".split()
]
PLAIN += sorted((ROOT / "zoo" / "eqsim_zoo").glob("*.py"))
PLAIN += sorted((ROOT / "eqsim").glob("*.py"))
PLAIN += [
    f for f in sorted((ROOT / "plugins").glob("*/*")) if f.name.startswith("eqsim_")
]
_FRAGMENTS = "of by what who whom whose that how whether where which".split()
FRAGMENT = re.compile(rf"(?:{'|'.join(map(str.capitalize, _FRAGMENTS))})\b")
# In lists of arguments and in running text, across lines.
_FIELD = r"(?:`[^`]+`(?: \([^)]*\))?(?:, |,? and )?)+"
_NO_NOUN = [*_FRAGMENTS, "when", "as", "from", "with which", "to"]
FRAGMENT_FIELD = re.compile(rf"{_FIELD}: (?:{'|'.join(_NO_NOUN)})\b")
_VERBS = "Add Ask Assert Build Call Check Compute Convert Draw Find Get Give Make Mark"
_VERBS += " Move Print Put Raise Read Register Return Run Say Set Solve Take Test Write"
THIRD_PERSON = re.compile(rf"(?:{'|'.join(_VERBS.split())})e?s\b")
# Functions of the zoo begin with an imperative, not with what they return.
RESULT = re.compile(r"(?:The|A|An|All|As|Each|Loss|Value|Whether)\b")
PHRASES = re.compile(
    r"\b(?:numbers of (?:a|the|one) robot|a picture|pictures|as it is\b(?! \w)|anew|"
    r"goes on|go on|a row of \w+s|feels|is believed|who wants|what follows|"
    r"makes? no sense|will not do|side by side|at once|in no time|not heard|dear|"
    r"some time ago|how many there were|foretells?|tells? apart)\b",
    re.IGNORECASE,
)
# MuJoCo's structures are read by the names in a table, here and nowhere else.
READS_BY_NAME = [ROOT / "eqsim" / "io" / "mjcf"]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def _parse(file):
    return ast.parse(file.read_text())


@functools.cache
def _entry_points():
    """The names that a user writes as `eqsim.name`."""
    nodes = ast.walk(_parse(ROOT / "eqsim" / "__init__.py"))
    imports = (node for node in nodes if isinstance(node, ast.ImportFrom))
    return {alias.name for node in imports for alias in node.names}


def _check(find, files=FILES):
    """Fail with all problems of all files: one test, as thousands take long to start."""
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text}"
        for file in files
        for line, text in find(file)
    ]
    assert not found, "\n" + "\n".join(found)


def test_sizes():
    _check(_sizes)


def _sizes(file):
    entry_points, problems = _entry_points(), []
    lines = len(file.read_text().splitlines())
    if lines > FILE_LINES:
        problems.append((1, f"{lines} lines; at most {FILE_LINES}: split off one idea"))
    for node in ast.walk(_parse(file)):
        if isinstance(node, FUNCTIONS):
            limit = ENTRY_POINT_LINES if node.name in entry_points else FUNCTION_LINES
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > limit:
                text = f"`{node.name}` has {lines} lines; at most {limit}"
                problems.append((node.lineno, text))
    return problems


def test_banned_constructs():
    _check(_banned_constructs)


def _banned_constructs(file):
    problems = []
    for node in ast.walk(_parse(file)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            allowed = (name == "print" and "_cli" in file.parts) or (
                name == "getattr" and file.parent in READS_BY_NAME
            )
            if name in BANNED_CALLS and not allowed:
                problems.append((node.lineno, f"`{name}`: {BANNED_CALLS[name]}"))
        if isinstance(node, ast.ImportFrom):
            if node.module == "__future__":
                text = "annotations must not become strings: jaxtyping reads them"
                problems.append((node.lineno, text))
            if any(alias.name == "*" for alias in node.names):
                problems.append((node.lineno, "`import *`: name what is imported"))
        if isinstance(node, FUNCTIONS) and node.args.kwarg is not None:
            inside = (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
            if node.args.kwarg.arg not in inside:
                text = (
                    f"`**{node.args.kwarg.arg}` is swallowed: a misspelling would pass"
                )
                problems.append((node.lineno, text))
    return problems


@functools.cache
def _classes():
    """The names of all classes of ours."""
    nodes = (node for file in FILES for node in ast.walk(_parse(file)))
    return {node.name for node in nodes if isinstance(node, ast.ClassDef)}


def test_concrete_classes_are_final():
    _check(_concrete_classes_are_final)


def _concrete_classes_are_final(file):
    """A class of ours that is inherited from is called `Abstract...`."""
    ours, problems = _classes(), []
    for node in ast.walk(_parse(file)):
        if not isinstance(node, ast.ClassDef):
            continue
        for base in node.bases:
            base = base.value if isinstance(base, ast.Subscript) else base
            name = base.attr if isinstance(base, ast.Attribute) else ast.unparse(base)
            if name in ours and not name.lstrip("_").startswith("Abstract"):
                text = f"`{node.name}` inherits from the concrete class `{name}`"
                problems.append((node.lineno, text))
    return problems


def test_init_only_exports():
    _check(_init_only_exports, [file for file in FILES if file.name == "__init__.py"])


def _init_only_exports(file):
    tree, problems = _parse(file), []
    if ast.get_docstring(tree) is None:
        problems.append((1, "a package says in one sentence what it holds"))
    is_root = file.parent in LIBRARIES
    for node in tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        # The version and the type-check hook, in the root of a library only.
        setup = is_root and isinstance(node, (ast.Assign, ast.If, ast.Import))
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            for alias in node.names:
                if alias.asname != alias.name:
                    text = f"write `{alias.name} as {alias.name}`: it is public"
                    problems.append((node.lineno, text))
        elif not (docstring or setup):
            problems.append((node.lineno, "only re-exports belong here"))
    if len(file.read_text().splitlines()) > 100:
        problems.append((1, "more than 100 lines of public names"))
    return problems


def _texts(file):
    """Docstrings, other texts and comments, with their lines."""
    tokens = tokenize.generate_tokens(io.StringIO(file.read_text()).readline)
    for token in tokens:
        if tokenize.tok_name[token.type] in ("COMMENT", "STRING", "FSTRING_MIDDLE"):
            yield token.start[0], token.string


@pytest.mark.parametrize("folder", PLAIN, ids=lambda f: str(f.relative_to(ROOT)))
def test_plain_english(folder):
    """Docstrings begin with a verb or a noun, and fields are described by noun phrases."""
    found = []
    for file in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
        for node in ast.walk(_parse(file)):
            if not (
                isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            ):
                continue
            text = " ".join(str(node.value.value).split())
            fragments = [f[0] for f in FRAGMENT_FIELD.finditer(text)]
            fragments += [text[:60]] if FRAGMENT.match(text) else []
            found += [f"{file}:{node.lineno}: a fragment: {f}" for f in fragments]
        for node in ast.walk(_parse(file)):
            text = ast.get_docstring(node) if isinstance(node, FUNCTIONS) else None
            result = text and "zoo" in file.parts and RESULT.match(text)
            result = result and not node.decorator_list  # A property is named so.
            if text is not None and (result or THIRD_PERSON.match(text)):
                found.append(f"{file}:{node.lineno}: not imperative: {text[:60]}")
        for number, text in _texts(file):
            for match in PHRASES.finditer(" ".join(text.split())):
                found.append(f"{file}:{number}: {match[0]!r}: use the field's word")
    assert not found, "\n" + "\n".join(found)


PAGES = [
    *ROOT.glob("[!C]*.md"),
    ROOT / "CONTRIBUTING.md",
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("*/README.md"),
]
PAGES += ROOT.glob("plugins/*/*.md")
CELL = re.compile(r"\| (?:of|by|that|what|who|whom|whose|which)\b[^|]*(?=\|)")


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda f: str(f.relative_to(ROOT)))
def test_plain_english_of_pages(page):
    """Fields and cells of tables are noun phrases, and sentences use the field's words."""
    prose = re.sub(
        r"```.*?```", lambda m: "\n" * m[0].count("\n"), page.read_text(), flags=re.S
    )
    found = [
        f"{page}:{number}: {match[0]!r}"
        for number, line in enumerate(prose.splitlines(), 1)
        for pattern in (PHRASES, FRAGMENT_FIELD, CELL)
        for match in pattern.finditer(line)
    ]
    assert not found, "\n" + "\n".join(found)


PLUGINS = sorted((ROOT / "plugins").rglob("*.py"))


def test_sizes_of_plugins():
    """No file of a plugin, with its tests and examples, is longer than one of eqsim may
    be."""
    sizes = {f: len(f.read_text().splitlines()) for f in PLUGINS}
    long = [f"{f}: {n} lines" for f, n in sizes.items() if n > FILE_LINES]
    assert sizes and not long, "\n".join(long)


def test_example_plugin_uses_public_names():
    """What third parties copy imports nothing private of eqsim or eqsim-zoo, neither
    modules nor names."""
    found = []
    for file in (ROOT / "plugins" / "eqsim-example" / "eqsim_example").glob("*.py"):
        for node in ast.walk(_parse(file)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            ours = [n for n in names if n.partition(".")[0] in ("eqsim", "eqsim_zoo")]
            found += [f"{file}: {n}" for n in ours if "._" in n]
            private = isinstance(node, ast.Attribute) and node.attr.startswith("_")
            if private and ast.unparse(node).startswith(("eqsim.", "eqsim_zoo.")):
                found.append(f"{file}: {ast.unparse(node)}")
    assert not found, "\n".join(found)


def test_no_paths_of_one_machine():
    folders = "eqsim zoo plugins tests benchmarks docs .ci".split()
    inside = [f for folder in folders for f in (ROOT / folder).rglob("*")]
    suffixes = {"", ".py", ".md", ".toml", ".txt", ".json", ".html", ".yml"}
    pattern = re.compile(r"(?<![\w.:/*-])/(home|root|Users|tmp|work)/\w")
    found = []
    for file in [*ROOT.iterdir(), *inside]:
        if file.is_file() and file.suffix in suffixes and file.name != ".git":
            lines = enumerate(file.read_text(errors="ignore").splitlines(), 1)
            found += [
                f"{file}:{i}: {line}" for i, line in lines if pattern.search(line)
            ]
    assert not found, "\n".join(found)
