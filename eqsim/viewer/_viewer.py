"""The live page."""

import html
import threading
import time
from typing import Any

from ._door import Door
from ._painter import Painter
from ._panel import Panel
from ._server import stop_server
from ._session import Session


_FRAME, _TEXT = 1.0 / 30.0, 0.2


class Viewer:
    """A page that shows robots, and the thread that moves them. `show` makes one.

    It is a context manager that closes the page at the end, and notebooks display it.
    """

    def __init__(
        self,
        session: Session,
        panel: Panel,
        painter: Painter,
        server: Any,
        door: Door,
        url: str,
    ):
        self._session, self._panel, self._painter = session, panel, painter
        self._server, self._door, self._url = server, door, url
        self._closing, self._closed = threading.Event(), False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address of the page, with its token if it has one."""
        return self._url

    def wait(self) -> None:
        """Wait until the viewer is closed, or until the user interrupts.

        **Raises:** what the simulation raises.
        """
        try:
            while not self._closing.wait(0.2):
                pass
        except KeyboardInterrupt:
            self.close()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Stop the simulation and close the page."""
        self._closing.set()
        if self._closed:
            return
        self._closed = True
        self._thread.join(60.0)
        self._door.close()
        stop_server(self._server)

    def __enter__(self) -> "Viewer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{html.escape(self.url)}" width="100%" height="480" '
            'style="border:1px solid #ddd"></iframe>'
        )

    def _run(self) -> None:
        try:
            self._painter.draw(self._session, self._panel)
            self._panel.refresh(0.0)
            self._play()
        except Exception as error:
            self._error = error
            self._server.gui.add_markdown(f"**Stopped:** {error}")
            self._closing.set()

    def _play(self) -> None:
        session, panel = self._session, self._panel
        last = time.monotonic()
        written, passed = last, 0.0
        while not self._closing.is_set():
            now, before = time.monotonic(), session.moment.time
            dirty = not panel.pending.empty()
            panel.run_pending()
            moved = session.tick(now - last)
            last = now
            passed += max(session.moment.time - before, 0.0) if moved else 0.0
            if moved or dirty:
                self._painter.draw(session, panel)
            # Text and the slider of time change less often than the robots.
            if dirty or (moved and now - written > _TEXT):
                panel.refresh(passed / max(now - written, 1e-3))
                written, passed = now, 0.0
            self._closing.wait(max(0.0, _FRAME - (time.monotonic() - now)))
