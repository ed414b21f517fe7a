"""Headless Chromium, driven through its DevTools protocol."""

import base64
import contextlib
import itertools
import json
import pathlib
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from websockets.sync.client import connect
from websockets.sync.connection import Connection


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--disable-background-networking",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--remote-debugging-port=0",
)


class Page:
    """A tab of a browser.

    - `requests`: addresses that the page asked for.
    """

    def __init__(self, socket: Connection):
        self._socket, self._ids = socket, itertools.count()
        self.requests: list[str] = []
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        number = next(self._ids)
        self._socket.send(
            json.dumps({"id": number, "method": method, "params": params})
        )
        while True:
            message = json.loads(self._socket.recv(timeout=180))
            if message.get("method") == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            if message.get("method") == "Network.webSocketCreated":
                self.requests.append(message["params"]["url"])
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def run(self, script: str) -> Any:
        """Evaluate JavaScript, and return its value."""
        out = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in out:
            raise RuntimeError(out["exceptionDetails"])
        return out["result"].get("value")

    def until(self, script: str, seconds: float = 60.0) -> Any:
        """Evaluate JavaScript until its value is true."""
        end = time.monotonic() + seconds
        while not (value := self._during_navigation(f"document.body && ({script})")):
            if time.monotonic() > end:
                text = self.run("document.body?.innerText")
                raise TimeoutError(f"{script} is still false. The page says: {text}")
            time.sleep(0.2)
        return value

    def _during_navigation(self, script: str) -> Any:
        """Evaluate JavaScript; return None if the page is left meanwhile."""
        try:
            return self.run(script)
        except RuntimeError as error:
            if "navigated or closed" not in str(error):
                raise
            return None

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """Change the size of the window and the preferred color scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self) -> bytes:
        """Return an image of the page, PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot")["data"])

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at one point and release it at another."""
        mouse = {"button": "left", "buttons": 1, "clickCount": 1}
        steps = ("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)
        for kind, (x, y) in steps:
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **mouse)


@contextlib.contextmanager
def opened(
    url: str, folder: pathlib.Path, offline: bool = False, size=(1200, 800)
) -> Iterator[Page]:
    """A page in a browser of its own.

    **Arguments:**

    - `folder`: folder for the profile of the browser.
    - `offline`: true if no address can be reached.
    """
    if CHROMIUM is None:
        raise RuntimeError("Chromium is missing.")
    blocked = ["--host-resolver-rules=MAP * ~NOTFOUND"] if offline else []
    profile = [f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}"]
    process = subprocess.Popen(
        [CHROMIUM, *_FLAGS, *profile, *blocked, "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with connect(_address(folder), max_size=None) as socket:
            page = Page(socket)
            page.call("Page.navigate", url=url)
            yield page
    finally:
        process.terminate()
        process.wait(20)


def _address(folder: pathlib.Path) -> str:
    """The address of the tab, once the browser has written its port."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            port = (folder / "DevToolsActivePort").read_text().split()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as reply:
                tabs = [tab for tab in json.load(reply) if tab["type"] == "page"]
            return tabs[0]["webSocketDebuggerUrl"]
        except (OSError, IndexError, ValueError):
            time.sleep(0.1)
    raise TimeoutError("Chromium did not start.")
