"""One self-contained HTML page: text, tables, and the pictures inside it."""

import base64
import html
import pathlib

from .tables import Table


CSS = """
body { font: 17px/1.55 system-ui, sans-serif; color: #222; background: #fff;
  max-width: 60rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.9rem; margin-bottom: .2rem; }
h2 { font-size: 1.3rem; margin-top: 2.6rem; border-top: 1px solid #ddd;
  padding-top: 1.2rem; }
p { max-width: 44rem; }
p.note { color: #555; font-size: .9rem; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .95rem; }
th { text-align: right; font-weight: 600; border-bottom: 2px solid #222; }
td { text-align: right; border-bottom: 1px solid #e4e4e4;
  font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
pre { background: #f5f6f8; padding: .8rem 1rem; overflow-x: auto; font-size: .8rem;
  line-height: 1.4; }
img { max-width: 100%; height: auto; margin: .5rem 0; }
"""


class Page:
    """Collects the sections of the report."""

    def __init__(self, title: str, subtitle: str):
        self.title = title
        self.parts = [f"<h1>{html.escape(title)}</h1>"]
        self.text(subtitle, note=True)

    def section(self, heading: str) -> None:
        self.parts.append(f"<h2>{html.escape(heading)}</h2>")

    def text(self, text: str, *, note: bool = False) -> None:
        start = '<p class="note">' if note else "<p>"
        self.parts.append(f"{start}{html.escape(text)}</p>")

    def command(self, command: str, printed: str) -> None:
        """What was typed, and what it printed."""
        text = html.escape(f"$ {command}\n{printed}")
        self.parts.append(f"<pre>{text}</pre>")

    def table(self, table: Table) -> None:
        row = lambda tag, cells: "".join(
            f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells
        )
        body = "\n".join(f"<tr>{row('td', cells)}</tr>" for cells in table.rows)
        head = f"<thead><tr>{row('th', table.columns)}</tr></thead>"
        self.parts.append(f"<table>{head}<tbody>{body}</tbody></table>")

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
