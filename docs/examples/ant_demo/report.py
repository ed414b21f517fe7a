"""One self-contained HTML page with text, tables, images and viewers."""

import base64
import html
import pathlib

from .tables import Table


CSS = """
:root { color-scheme: light dark; --text: #222; --soft: #59616b; --line: #dde1e6;
  --page: #fff; --box: #f4f6f8; --accent: #1f6fb2; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e7ea; --soft: #a0a9b3;
  --line: #394049; --page: #16191d; --box: #20252b; --accent: #6db1ea; } }
body { font: 17px/1.55 system-ui, sans-serif; color: var(--text);
  background: var(--page); max-width: 60rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.9rem; line-height: 1.25; margin-bottom: .2rem; }
h2 { font-size: 1.3rem; margin-top: 2.6rem; border-top: 1px solid var(--line);
  padding-top: 1.2rem; }
p { max-width: 44rem; }
p.note { color: var(--soft); font-size: .9rem; overflow-wrap: anywhere; }
.figures { display: grid; gap: .8rem; margin: 1.4rem 0;
  grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); }
.figures div { background: var(--box); border-radius: 6px; padding: .8rem 1rem; }
.figures b { display: block; font-size: 1.35rem; color: var(--accent); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .95rem; }
th { text-align: right; font-weight: 600; border-bottom: 2px solid var(--text); }
td { text-align: right; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
pre { background: var(--box); padding: .8rem 1rem; overflow-x: auto; font-size: .8rem;
  line-height: 1.4; }
img { max-width: 100%; height: auto; margin: .5rem 0; border-radius: 6px;
  background: #fff; }
iframe { width: 100%; height: 26rem; border: 1px solid var(--line); border-radius: 6px; }
@media (max-width: 40rem) { body { margin: 1.2rem auto; font-size: 16px; }
  iframe { height: 18rem; } th, td { padding: .3rem .5rem; } }
"""


class Page:
    """A page to which sections are added."""

    def __init__(self, title: str, subtitle: str):
        self.title = title
        self.parts = [f"<h1>{html.escape(title)}</h1>"]
        self.text(subtitle, note=True)
        self._top = len(self.parts)

    def section(self, heading: str) -> None:
        self.parts.append(f"<h2>{html.escape(heading)}</h2>")

    def text(self, text: str, *, note: bool = False) -> None:
        start = '<p class="note">' if note else "<p>"
        self.parts.append(f"{start}{html.escape(text)}</p>")

    def figures(self, figures: list[tuple[str, str]]) -> None:
        """Show numbers with their meaning at the top of the page."""
        cells = "".join(
            f"<div><b>{html.escape(number)}</b>{html.escape(meaning)}</div>"
            for number, meaning in figures
        )
        self.parts.insert(self._top, f'<div class="figures">{cells}</div>')

    def command(self, command: str, printed: str) -> None:
        """Show a command and its output."""
        text = html.escape(f"$ {command}\n{printed}")
        self.parts.append(f"<pre>{text}</pre>")

    def table(self, table: Table) -> None:
        row = lambda tag, cells: "".join(
            f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells
        )
        body = "\n".join(f"<tr>{row('td', cells)}</tr>" for cells in table.rows)
        head = f"<thead><tr>{row('th', table.columns)}</tr></thead>"
        whole = f"<table>{head}<tbody>{body}</tbody></table>"
        self.parts.append(f'<div class="wide">{whole}</div>')

    def viewer(self, page: str, title: str) -> None:
        """Embed a page of `eqsim.viewer.export`."""
        self.parts.append(
            f'<iframe loading="lazy" title="{html.escape(title)}" '
            f'srcdoc="{html.escape(page)}"></iframe>'
        )

    def image(self, path: pathlib.Path, alt: str) -> None:
        data = base64.b64encode(path.read_bytes()).decode()
        kind = path.suffix[1:]
        self.parts.append(
            f'<img alt="{html.escape(alt)}" src="data:image/{kind};base64,{data}">'
        )

    def write(self, path: pathlib.Path) -> None:
        head = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html.escape(self.title)}</title><style>{CSS}</style></head>"
        )
        body = "\n".join(self.parts)
        path.write_text(f"{head}\n<body>\n{body}\n</body></html>\n", encoding="utf-8")
