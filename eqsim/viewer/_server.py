import contextlib
import io
from typing import Any

from ._extra import import_viser


def start_server(title: str, dark: bool) -> Any:
    """Start a `viser.ViserServer` on a free port of this machine, quietly."""
    viser = import_viser()
    # It prints a box with addresses, which are not those of the viewer.
    with contextlib.redirect_stdout(io.StringIO()):
        server = viser.ViserServer("127.0.0.1", 0, title, verbose=False)
    server.gui.configure_theme(dark_mode=dark, show_logo=False, show_share_button=False)
    return server


def stop_server(server: Any) -> None:
    """Stop a server, quietly."""
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()
