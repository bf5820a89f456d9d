"""How requests are read and answered: within limits, in sentences, whatever comes."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from openaclnn.explorer.refusals import Refused

__all__ = ["PATIENCE", "Handler", "as_json"]

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


class Handler(BaseHTTPRequestHandler):
    """One connection; what is served is `answer`'s business."""

    protocol_version = "HTTP/1.1"
    server_version = "openaclnn"
    sys_version = ""
    timeout = PATIENCE
    _unread: float = 0  # bytes of the request's body

    def answer(self) -> tuple[bytes, str]:
        """The body and its type; Refused for a request that is not served."""
        raise NotImplementedError

    def arrived(self) -> None:
        """The request has come whole: the server has work."""

    def answered(self) -> None:
        """It is the other side's turn."""

    def __getattr__(self, name: str) -> Any:
        """Every method is answered by the same function."""
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        self._unread = self._declared_length()
        if not self._unread:
            self.arrived()
        status, allow = 200, ""
        try:
            body, kind = self.answer()
        except Refused as refused:
            status, allow, (body, kind) = refused.status, refused.allow, as_json(refused.told)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:  # a fault of ours: this request alone fails
            told = f"a fault of openaclnn: {type(error).__name__}: {error}"
            status, (body, kind) = 500, as_json({"error": told[:1000]})
        self.answered()
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
        self.arrived()

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


def as_json(value: Any) -> tuple[bytes, str]:
    """A body and its type."""
    text = json.dumps(_plain(value), allow_nan=False, separators=(",", ":"))
    return text.encode(), "application/json"


def _plain(value: Any) -> Any:
    """NaN and infinities, which JSON lacks, as text."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
