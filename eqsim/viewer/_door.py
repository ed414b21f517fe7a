"""Access control: a relay in front of viser, which has none."""

import asyncio
import hmac
import ipaddress
import threading
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit


_COOKIE = "eqsim-viewer"
_HEAD, _SECONDS = 65536, 20.0
_FORBIDDEN = (
    "This viewer needs the address with its token, which `eqsim view` printed and which "
    "`viewer.url` is.\n"
)


class Door:
    """A relay that passes allowed requests on to a server on this machine.

    A request must name this machine as its host if the relay listens on loopback only, it
    must come from the page itself if it says where it comes from, and it must have the
    token, if there is one, in its address or in the cookie that such an address sets. All
    other requests get status 403.

    **Arguments:**

    - `host`: address to listen at.
    - `port`: port to listen at; 0 for any that is free.
    - `inner`: port of the server, on 127.0.0.1.
    - `token`: secret, or None to let everyone in who can reach the address.

    **Raises:** `OSError` if the port is taken.
    """

    def __init__(self, host: str, port: int, inner: int, token: str | None):
        self._inner, self._token = inner, token
        self._only_here = is_loopback(host)
        self._tasks: set[asyncio.Task | None] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self._server = self._call(asyncio.start_server(self._serve, host, port))
        except OSError:
            self._stop_loop()
            raise
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Close the port and all connections."""
        self._call(self._end())
        self._stop_loop()

    def _call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20.0)

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader, writer) -> None:
        # asyncio holds tasks weakly: that of a connection whose client has closed its half
        # would be collected before the answer.
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            limit = asyncio.timeout(_SECONDS)
            async with limit:
                head = await reader.readuntil(b"\r\n\r\n")
            answer = None if len(head) > _HEAD else self._answer(parse(head))
            if answer is None:
                await self._relay(head, reader, writer)
            else:
                writer.write(answer)
                await writer.drain()
        except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError):
            pass  # The other side hung up, or does not speak HTTP.
        except asyncio.LimitOverrunError:
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _relay(self, head: bytes, reader, writer) -> None:
        # One request per connection: viser closes it, or turns it into a WebSocket.
        inner_reader, inner_writer = await asyncio.open_connection(
            "127.0.0.1", self._inner
        )
        inner_writer.write(head)
        both = _pump(reader, inner_writer, False), _pump(inner_reader, writer, True)
        try:
            await asyncio.gather(*both)
        finally:
            inner_writer.close()

    def _answer(self, request: "Request") -> bytes | None:
        """Return the answer to a request that is not passed on."""
        if self._only_here and not is_loopback(request.host):
            return _response("403 Forbidden", "This host name is not allowed.\n")
        if request.origin not in (None, request.authority):
            return _response("403 Forbidden", "Another page may not connect.\n")
        if self._token is None:
            return None
        same = lambda x: hmac.compare_digest(x.encode(), (self._token or "").encode())
        if same(request.token):
            cookie = f"{_COOKIE}={self._token}; Path=/; HttpOnly; SameSite=Lax"
            return _response(
                "303 See Other", "", f"Location: /\r\nSet-Cookie: {cookie}"
            )
        return None if same(request.cookie) else _response("403 Forbidden", _FORBIDDEN)


class Request(NamedTuple):
    """The parts of an HTTP request that decide whether it is allowed.

    - `authority`, `host`: host of the request, with port and without.
    - `origin`: host and port of the page that sends it; None without one.
    - `token`, `cookie`: secrets in the address and in the cookie; empty without.
    """

    authority: str
    host: str
    origin: str | None
    token: str
    cookie: str


def parse(head: bytes) -> Request:
    """Read the head of an HTTP request.

    **Raises:** `ValueError` if it is none.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    _, target, version = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"{version!r} is not HTTP/1.")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    authority = headers.get("host", "")
    origin = headers.get("origin")
    cookies = dict(
        part.strip().partition("=")[::2]
        for part in headers.get("cookie", "").split(";")
    )
    return Request(
        authority,
        urlsplit(f"//{authority}").hostname or "",
        None if origin is None else urlsplit(origin).netloc,
        parse_qs(urlsplit(target).query).get("token", [""])[0],
        cookies.get(_COOKIE, ""),
    )


def is_loopback(host: str) -> bool:
    """Return true for names and addresses of this machine that no other can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _pump(reader, writer, closes: bool) -> None:
    """Pass on data up to its end. If the client has sent everything, it may still wait for
    the answer; after the answer (`closes`), nothing follows."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    if closes:
        writer.close()
    elif writer.can_write_eof():
        writer.write_eof()


def _response(status: str, text: str, header: str = "") -> bytes:
    body = text.encode()
    lines = [
        f"HTTP/1.1 {status}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *([header] if header else []),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body
