"""What the tests of the explorer share: a server in a thread, and requests as a page makes them."""

from __future__ import annotations

import copy
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from openaclnn.core.declare import Operator
from openaclnn.explorer.answers import declared
from openaclnn.explorer.server import Explorer

JSON = {"Content-Type": "application/json"}
BYTES = {"Content-Type": "application/octet-stream"}


@contextmanager
def serving(host: str = "127.0.0.1") -> Iterator[Explorer]:
    """A server that answers until the block ends."""
    with Explorer(host) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(
    server: Explorer,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any, http.client.HTTPMessage]:
    """One request: status, the answer (as JSON where it is), and headers."""
    host, port = server.server_address[:2]
    connection = http.client.HTTPConnection(str(host), port, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        held = answer.read()
        is_json = answer.getheader("Content-Type") == "application/json"
        return answer.status, json.loads(held) if is_json and held else held, answer.headers
    finally:
        connection.close()


def call(server: Explorer, operator: Operator | str, arguments: Any, **more: Any) -> Any:
    """What a call is told; it must be one."""
    name = operator if isinstance(operator, str) else operator.name
    body = json.dumps({"operator": name, "arguments": arguments, **more})
    status, told, _ = ask(server, "POST", "/api/call", body, JSON)
    assert status == 200, told
    return told


def sample(operator: Operator, number: int = 0) -> dict[str, Any]:
    """A sample's arguments, as the page sends them."""
    page = next(each for each in declared()["operators"] if each["name"] == operator.name)
    arguments: dict[str, Any] = copy.deepcopy(page["samples"][number]["arguments"])
    return arguments
