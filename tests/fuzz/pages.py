"""Messages to the viewer: requests to its door, and values of its controls."""

import http.server
import socket
import threading
from random import Random
from types import SimpleNamespace

import jax.random as jr
import numpy as np

from eqsim import viewer
from eqsim.viewer._door import Door
from eqsim.viewer._pages import start_server
from eqsim.viewer._panel import Panel
from eqsim.viewer._physics import default_sliders, Mode, Setup
from eqsim.viewer._session import Session

from .models import MODELS
from .mutations import damaged, value, word


_SECRET = "a-secret"
_HEADS = (
    "GET /?token=a-secret HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: eqsim-viewer=a-secret; x=y\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
    "Cookie: eqsim-viewer=\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: [::1]:80\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "GET //evil?token=%00 HTTP/1.0\r\nHost: evil.example\r\n\r\n",
)


class _Inner(http.server.BaseHTTPRequestHandler):
    passed: list[str] = []

    def do_GET(self):
        self.passed.append(self.raw_requestline.decode("latin-1") + str(self.headers))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format, *args):
        pass


class Kind:
    """Law: the door answers the next request, nothing without the token passes it, and no
    value of a control stops the page or leaves a state that the page cannot show."""

    REFUSALS = ()
    WRITES = ()

    def __init__(self, folder):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Inner)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        inner = server.server_address[1]
        self.doors = [
            Door("127.0.0.1", 0, inner, _SECRET),
            Door("127.0.0.1", 0, inner, None),
        ]
        env = viewer.as_environment(_robot())
        labels = default_sliders(env.sys)
        self.sliders = tuple(labels.values())
        values = np.array([x.initial(env.sys) for x in self.sliders])
        self.session = Session(Setup(env, self.sliders), values, jr.key(0), 1)
        self.server = start_server("eqsim", False)
        self.panel = Panel(
            self.server, self.session, labels, True, [0, 1], lambda k, on: None
        )
        handles = self.server.gui._gui_input_handle_from_uuid
        self.handles = list(handles.values())
        self.session.simulates = False

    def attempt(self, rng: Random):
        return (
            self._attempt_door(rng) if rng.random() < 0.4 else self._attempt_panel(rng)
        )

    def _attempt_door(self, rng: Random):
        text = rng.choice(_HEADS)
        action = rng.random()
        data = text.encode("latin-1")
        if action < 0.6:
            data = damaged(rng, data)
        elif action < 0.75:
            line = f"{word(rng)}: {word(rng)}\r\n".encode(errors="replace")
            data = data.replace(b"\r\n", b"\r\n" + line[:60_000], 1)
        elif action < 0.8:
            data = b"A" * rng.choice((10, 65_000, 70_000, 300_000))
        elif action < 0.9:
            target = word(rng).encode(errors="replace")
            data = b"GET " + target + b" HTTP/1.1\r\nHost: " + target + b"\r\n\r\n"
        door = rng.choice(self.doors)
        _Inner.passed.clear()
        answer = _exchange(door.port, data)
        head = data.decode("latin-1")
        if door is self.doors[0] and f"eqsim-viewer={_SECRET}" not in head:
            assert not _Inner.passed, f"passed without token: {_Inner.passed}"
        good = _exchange(door.port, _HEADS[1].encode())
        assert b"200 OK" in good, f"the door does not answer any more: {good!r}"
        status = answer.split(b"\r\n")[0].decode("latin-1")
        return None if b" 200 " in answer[:40] else f"answer {status!r} to the request"

    def _attempt_panel(self, rng: Random):
        handle = rng.choice(self.handles)
        state = handle._impl
        before, refused = state.value, False
        new = rng.choice(
            (
                rng.gauss(0, 5),
                float("nan"),
                float("inf"),
                -1e308,
                10**400,
                True,
                word(rng),
            )
            + (
                value(rng),
                "Step",
                "Reset",
                "2x",
                "random",
                "policy",
                "first state",
                "home",
            )
        )
        try:
            new = tuple(new) if isinstance(before, tuple) else type(before)(new)
        except Exception:
            refused = True  # The server of the page refuses it.
        else:
            state.value = new
            event = SimpleNamespace(client_id=1, client=None, target=handle)
            for act in list(state.update_cb):
                act(event)
        self._check()
        return "the server of the page refuses it" if refused else None

    def _check(self):
        session, panel = self.session, self.panel
        panel.run_pending()
        assert session.simulates in (True, False)
        session.simulates = False  # Compiling belongs to other tests.
        session.tick(0.001)
        panel.refresh(1.0)
        assert np.isfinite(session.values).all() and np.isfinite(session.ctrl).all()
        for slider, number in zip(self.sliders, session.values, strict=True):
            assert slider.low <= number <= slider.high, (
                f"{number} is outside its slider"
            )
        assert isinstance(session.mode, Mode) and 0 < session.speed <= 4
        assert 0.1 <= panel.force_length <= 5.0 and panel.forces in (True, False)


def _robot():
    import eqsim

    return eqsim.load_mjcf(MODELS[0])


def _exchange(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=5.0) as connection:
        connection.settimeout(5.0)
        out = b""
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while len(out) < 65536 and (chunk := connection.recv(4096)):
                out += chunk
        except OSError:
            pass  # It hung up.
        return out
