"""Who may connect."""

import gc
import http.client
import http.server
import socket
import threading
import time

import pytest

from eqsim.viewer._door import Door, is_loopback, parse


SECRET = "a-secret"


class Inner(http.server.BaseHTTPRequestHandler):
    """Answers each request with its path."""

    def do_GET(self):
        body = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="module")
def inner():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Inner)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def ask(port, path="/", **headers):
    """Status, headers and text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    out = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return out


@pytest.fixture
def opened(inner):
    doors = []

    def make(host, token):
        doors.append(Door(host, 0, inner, token))
        return doors[-1].port

    yield make
    for door in doors:
        door.close()


def test_loopback_needs_no_token(opened):
    port = opened("127.0.0.1", None)
    assert ask(port, "/page")[::2] == (200, "/page")
    assert ask(port, "/page", Host=f"localhost:{port}")[0] == 200
    same = {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}
    assert ask(port, **same)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Upgrade": "websocket", "Origin": "http://evil.example"},
    ],
)
def test_other_pages_are_refused(opened, headers):
    status, _, text = ask(opened("127.0.0.1", None), **headers)
    assert status == 403 and text


@pytest.mark.parametrize(
    "path, headers",
    [
        ("/", {}),
        ("/?token=wrong", {}),
        ("/?token=", {}),
        ("/", {"Cookie": "eqsim-viewer=wrong"}),
        ("/", {"Upgrade": "websocket"}),
    ],
)
def test_elsewhere_a_token_is_needed(opened, path, headers):
    status, _, text = ask(opened("0.0.0.0", SECRET), path, **headers)
    assert status == 403 and "token" in text


def test_the_token_sets_a_cookie_that_lets_in(opened):
    port = opened("0.0.0.0", SECRET)
    status, headers, _ = ask(port, f"/?token={SECRET}")
    assert status == 303 and headers["Location"] == "/"
    assert "HttpOnly" in headers["Set-Cookie"] and "SameSite" in headers["Set-Cookie"]
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert ask(port, "/page", Cookie=f"other=1; {cookie}")[::2] == (200, "/page")
    foreign = {"Cookie": cookie, "Origin": "http://evil.example"}
    assert ask(port, **foreign)[0] == 403


def test_a_client_that_sends_no_more_gets_its_answer(opened, monkeypatch):
    """It closes its half of the connection after the request. Nothing else may refer to
    the connection then: it survives the garbage collector."""
    answers = Inner.do_GET
    collect = lambda self: (time.sleep(0.2), gc.collect(), answers(self))
    monkeypatch.setattr(Inner, "do_GET", collect)
    port = opened("127.0.0.1", None)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(b"GET /page HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert b" 200 OK" in answer and answer.endswith(b"/page")


def test_nonsense_is_no_request():
    for head in (b"hello\r\n\r\n", b"GET / SSH/2\r\n\r\n"):
        with pytest.raises(ValueError):
            parse(head)


def test_loopback():
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert is_loopback(host)
    for host in (
        "0.0.0.0",
        "::",
        "192.168.0.1",
        "example.org",
        "127.0.0.1.example.org",
    ):
        assert not is_loopback(host)


def test_a_port_that_is_taken(opened, inner):
    port = opened("127.0.0.1", None)
    with pytest.raises(OSError):
        Door("127.0.0.1", port, inner, None)
