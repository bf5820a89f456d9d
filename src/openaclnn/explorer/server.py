"""The server of the page: this machine's loopback alone, requests of the page alone, each within limits."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import socketserver
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from openaclnn.core.writing import neutral, without_nan
from openaclnn.explorer.answers import (
    KINDS,
    Refused,
    answer_call,
    declared,
    read_call,
    verdict_of,
)
from openaclnn.testing.figures import STANDARDS

_HOSTS = ("127.0.0.1", "::1")
"""The addresses it may listen on."""

LARGEST_CALL = 256 << 10
"""Bytes of a request that describes a call."""

LARGEST_FILES = 128 << 20
"""Bytes of the files of a comparison, together."""

_CONNECTIONS = 64  # at one time
_COMPARISONS = 2  # at one time: they take memory

_PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/script.js": ("script.js", "text/javascript; charset=utf-8"),
}
_ASKED = {"/api/declared": "GET", "/api/call": "POST", "/api/compare": "POST"}


PATIENCE = 30.0
"""Seconds without a byte, or for a whole request."""

_PIECE = 1 << 16

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}  # fmt: skip


class Explorer(ThreadingHTTPServer):
    """The server: a thread for each connection, up to a number of them."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str = _HOSTS[0], port: int = 0) -> None:
        if host not in _HOSTS:
            raise ValueError(f"the explorer listens on {' or '.join(_HOSTS)}, not on {host}")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Since when each waits for its other side; None for those that the server works for.
        self.connections: dict[socket.socket, float | None] = {}
        self.comparisons = threading.BoundedSemaphore(_COMPARISONS)
        self.pages = {
            path: (files("openaclnn.explorer").joinpath("page", name).read_bytes(), kind)
            for path, (name, kind) in _PAGES.items()
        }
        super().__init__((host, port), _Handler)
        port = self.server_address[1]
        shown = f"[{host}]" if ":" in host else host
        # By other names than these, a page elsewhere could reach it: its own name may lead here.
        self.hosts = frozenset({f"{shown}:{port}", f"localhost:{port}"})
        self.address = f"http://{shown}:{port}/"

    def server_bind(self) -> None:
        """As its base does, without asking who the host is, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])  # fmt: skip

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self.connections) >= _CONNECTIONS and not self._end_one():
            self.shutdown_request(request)
            return
        self.connections[request] = time.monotonic()
        super().process_request(request, client_address)

    def _end_one(self) -> bool:
        """End the connection that has waited longest, for a new one; False where all have work."""
        waiting = {each: since for each, since in tuple(self.connections.items()) if since is not None}  # fmt: skip
        if not waiting:
            return False
        self._end(min(waiting, key=waiting.__getitem__))
        return True

    def _end(self, connection: socket.socket) -> None:
        """Its thread sees the end, and closes it."""
        self.connections.pop(connection, None)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def service_actions(self) -> None:
        """Ends connections whose other side takes too long, however slowly its bytes come."""
        late = time.monotonic() - PATIENCE
        for connection, since in tuple(self.connections.items()):
            if since is not None and since < late:
                self._end(connection)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.pop(request, None)

    def server_close(self) -> None:
        """Connections that pages keep open end too."""
        super().server_close()
        for connection in tuple(self.connections):
            self._end(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that went away is no event; anything else gets a line."""
        error = sys.exception()
        if not isinstance(error, OSError):
            told = neutral(f"openaclnn explorer: {type(error).__name__}: {error}")
            print(told, file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    """One connection: requests are read and answered within limits, in sentences, whatever comes."""

    server: Explorer
    protocol_version = "HTTP/1.1"
    server_version = "openaclnn"
    sys_version = ""
    timeout = PATIENCE
    _unread: float = 0  # bytes of the request's body

    def __getattr__(self, name: str) -> Any:
        """Every method is answered by the same function."""
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        self._unread = self._declared_length()
        if not self._unread:
            self._waits_since(None)
        status, allow = 200, ""
        try:
            body, kind = self._answer()
        except Refused as refused:
            status, allow, (body, kind) = refused.status, refused.allow, as_json(refused.told)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:  # a fault of ours: this request alone fails
            told = f"a fault of openaclnn: {type(error).__name__}: {error}"
            status, (body, kind) = 500, as_json({"error": told[:1000]})
        self._waits_since(time.monotonic())
        self._send(status, body, kind, allow)

    def _declared_length(self) -> float:
        """How many bytes follow; infinite where the request does not say."""
        text = self.headers.get("Content-Length", "0")
        told = "Transfer-Encoding" not in self.headers and text.isascii() and text.isdigit()
        return int(text) if told and len(text) <= 20 else math.inf

    def body(self, largest: int, kind: str) -> Iterator[bytes]:
        """The body's bytes as they come; Refused where they are too many, of another kind, or missing."""
        if self.headers.get_content_type() != kind:
            raise Refused(415, f"{kind} is expected")
        if "Content-Length" not in self.headers or math.isinf(self._unread):
            raise Refused(411, "a request says its length")
        if self._unread > largest:
            raise Refused(413, f"{self._unread:,} bytes are too many; at most {largest:,} are read")
        end = time.monotonic() + PATIENCE
        while self._unread:
            piece = self.rfile.read1(int(min(self._unread, _PIECE)))
            if not piece or time.monotonic() > end:
                raise Refused(408, "the request did not come in time")
            self._unread -= len(piece)
            yield piece
        self._waits_since(None)

    def _send(self, status: int, body: bytes, kind: str, allow: str = "") -> None:
        left = bool(self._unread)
        self.close_connection = self.close_connection or left
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if allow:
            self.send_header("Allow", allow)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        if left:
            self._let_go()

    def _let_go(self) -> None:
        """Read on for a moment, or the answer would be lost with the bytes that nobody reads."""
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(0.5)
        end = time.monotonic() + 5
        try:
            while time.monotonic() < end and self.connection.recv(_PIECE):
                pass
        except OSError:
            pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What cannot be read as a request, in our words."""
        self.close_connection = True
        self._unread = math.inf
        self.command = self.command or "GET"
        self._send(code, *as_json({"error": message or HTTPStatus(code).phrase}))

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not printed."""

    def _waits_since(self, moment: float | None) -> None:
        """Note since when it is the other side's turn; None where the request has come whole, and the server has work."""
        if self.connection in self.server.connections:  # it may have been ended
            self.server.connections[self.connection] = moment

    def _answer(self) -> tuple[bytes, str]:
        """The body and its type; Refused for a request that is not served."""
        self._admit()
        url = urlsplit(self.path)
        if url.path in _PAGES:
            self._allow("GET")
            return self.server.pages[url.path]
        if url.path not in _ASKED:
            raise Refused(404, "there is no such page")
        self._allow(_ASKED[url.path])
        if url.path == "/api/declared":
            return as_json(declared())
        if url.path == "/api/call":
            return as_json(answer_call(read_call(self._read_json())))
        return as_json(self._compare(parse_qs(url.query)))

    def _admit(self) -> None:
        """Requests that name this server, from its own page."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            raise Refused(403, f"the page is at {self.server.address} and by no other name")
        origin = self.headers.get("Origin")
        if origin is not None and origin.lower().removeprefix("http://") not in self.server.hosts:
            raise Refused(403, "other pages are not served")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            if urlsplit(self.path).path in _ASKED:
                raise Refused(403, "other pages are not served")

    def _allow(self, method: str) -> None:
        allowed = (method, "HEAD") if method == "GET" else (method,)
        if self.command not in allowed:
            sentence = f"this is asked for by {' or '.join(allowed)}"
            raise Refused(405, sentence, allow=", ".join(allowed))

    def _read_json(self) -> Any:
        text = b"".join(self.body(LARGEST_CALL, "application/json"))
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise Refused(400, "JSON is expected") from None

    def _compare(self, query: dict[str, list[str]]) -> dict[str, Any]:
        """The files lie one after the other in the body; the query has their names, and where the second begins."""
        names, [text] = query.get("name", []), query.get("first", [""])[:1]
        if len(names) != 2 or not (text.isascii() and text.isdigit() and len(text) < 20):
            raise Refused(400, "two files are expected: their names, and the size of the first")
        suffixes = [Path(name).suffix.lower() for name in names]
        for name, suffix in zip(names, suffixes, strict=True):
            if suffix not in KINDS:
                raise Refused(400, f"{name[:80]}: {', '.join(KINDS)} files are read here")
        with tempfile.TemporaryDirectory(prefix="openaclnn-") as folder:
            paths = [Path(folder, f"{role}{suffix}") for role, suffix in zip(("actual", "golden"), suffixes, strict=True)]  # fmt: skip
            self._keep(paths, int(text))
            standard = query.get("standard", [STANDARDS[0]])[0]
            if not self.server.comparisons.acquire(timeout=PATIENCE):
                raise Refused(503, "other comparisons are under way; try again")
            try:
                return verdict_of(paths, standard, query.get("dtype", [""])[0] or None)
            finally:
                self.server.comparisons.release()

    def _keep(self, paths: list[Path], first: int) -> None:
        """Write the body into two files."""
        with paths[0].open("wb") as one, paths[1].open("wb") as other:
            for piece in self.body(LARGEST_FILES, "application/octet-stream"):
                one.write(piece[:first])
                other.write(piece[first:])
                first = max(first - len(piece), 0)
        if first:
            raise Refused(400, "the first file is longer than both")


def as_json(value: Any) -> tuple[bytes, str]:
    """A body and its type."""
    text = json.dumps(without_nan(value), allow_nan=False, separators=(",", ":"))
    return text.encode(), "application/json"
