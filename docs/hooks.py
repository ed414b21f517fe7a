"""Hooks of MkDocs: pages of the API reference, of notebooks and of tables, and formulas.

Each public package gets a page with the names that its `__init__.py` exports, so a new
public name is documented without further work. Notebooks become pages with the outputs
that they store. Tables that nobody writes by hand come from `docs/tables.py`. Formulas
become MathML, which browsers draw themselves.
"""

import ast
import base64
import json
import pathlib
import re
from html import unescape
from typing import NamedTuple

import latex2mathml.converter
import tables
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


ROOT = pathlib.Path(__file__).parents[1]
LIBRARIES = {"eqsim": ROOT / "eqsim", "eqsim_zoo": ROOT / "zoo" / "eqsim_zoo"}
SOURCE_LINK = re.compile(r"\]\(\.\./((?:eqsim|zoo)/[\w/]+\.py)\)")
CODE = re.compile(r"<!-- code: (\S+) -->")
REPORT_LINK = re.compile(r"\]\(data/(\w+)\.json\)")
FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL
)


class Package(NamedTuple):
    """A public package: what it says of itself, and the names that it exports."""

    name: str
    summary: str
    exports: tuple[str, ...]

    @property
    def page(self) -> str:
        """Path of its page below the folder of the documentation."""
        return f"api/{self.name}.md"


def public_packages() -> list[Package]:
    """All public packages of eqsim and of the zoo, by name."""
    found = []
    for library, folder in LIBRARIES.items():
        for path in sorted(folder.rglob("__init__.py")):
            parts = path.parent.relative_to(folder).parts
            if not any(part.startswith("_") for part in parts):
                found.append(read_package(".".join([library, *parts]), path))
    return [package for package in found if package.exports]


def read_package(name: str, path: pathlib.Path) -> Package:
    """Read docstring and exports of a package without importing it.

    A name is exported as `from ._file import name as name`. Packages within packages
    have pages of their own.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in imports if node.module for alias in node.names]
    public = sorted({name for name in names if not name.startswith("_")}, key=str.lower)
    return Package(name, ast.get_docstring(tree) or "", tuple(public))


def reference_page(package: Package) -> str:
    """The page of a package in Markdown, for mkdocstrings."""
    entries = [f"::: {package.name}.{name}" for name in package.exports]
    return "\n\n".join([f"# {package.name}", package.summary, *entries, ""])


def notebook_page(path: pathlib.Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook in Markdown, and the images of its outputs by file name."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts, images = [], {}
    for cell in cells:
        source = "".join(cell["source"])
        code = cell["cell_type"] == "code"
        parts.append(f"```python\n{source}\n```" if code else source)
        for output in cell.get("outputs", ()):
            if "text" in output:
                text = "".join(output["text"]).rstrip()
                parts.append(f"```text\n{text}\n```")
            image = output.get("data", {}).get("image/png")
            if image:
                name = f"{path.stem}_{len(images)}.png"
                images[name] = base64.b64decode("".join(image))
                parts.append(f"![Output]({name})")
    download = f"[Download this notebook]({path.name}){{ download }}"
    return "\n\n".join([*parts, download, ""]), images


def source_links() -> list[str]:
    """Return the source files of the repository that pages link to."""
    pages = sorted((ROOT / "docs").glob("*.md"))
    texts = [page.read_text(encoding="utf-8") for page in pages]
    return sorted({path for text in texts for path in SOURCE_LINK.findall(text)})


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each public package, notebook, report of a benchmark, and source
    file with a link to it."""
    for path in sorted(tables.DATA.glob("*.json")):
        # Search finds pages that explain, not numbers.
        text = "---\nsearch: {exclude: true}\n---\n\n" + tables.report(path)
        files.append(File.generated(config, f"data/{path.stem}.md", content=text))
    for path in source_links():
        code = (ROOT / path).read_text(encoding="utf-8")
        text = f"# {path}\n\n~~~~python\n{code}~~~~\n"
        files.append(File.generated(config, f"source/{path}.md", content=text))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        text, images = notebook_page(path)
        page = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, page, content=text))
        for name, data in images.items():
            place = f"notebooks/{name}"
            files.append(File.generated(config, place, content=data))
    packages = public_packages()
    for package in packages:
        content = reference_page(package)
        files.append(File.generated(config, package.page, content=content))
    entry = next(entry for entry in config.nav or [] if "API" in entry)
    entry["API"] = [{package.name: package.page} for package in packages]
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Insert tables and files, and let links to source files and reports lead to their
    pages."""
    markdown = CODE.sub(_code, markdown)
    markdown = SOURCE_LINK.sub(r"](source/\1.md)", markdown)
    return tables.with_tables(REPORT_LINK.sub(r"](data/\1.md)", markdown))


def on_page_content(html: str, **_: object) -> str:
    """Replace each formula by MathML."""
    return FORMULA.sub(_mathml, html)


def _code(found: re.Match[str]) -> str:
    text = (ROOT / found[1]).read_text(encoding="utf-8")
    return f"```python\n{text}```"


def _mathml(found: re.Match[str]) -> str:
    display = "inline" if found[2] == "(" else "block"
    formula = unescape(found[3])
    return latex2mathml.converter.convert(formula, display=display)
