"""The configuration file of `aclInit`: JSON, of which the keys below are recognised.

    {"err_msg_mode": "0", "openaclnn": {"product": "...", "device": "cpu", "sanitize": "1"}}

A section that asks for a tool which openaclnn lacks (dumps, profiling) is refused, since the program would wait for files that
are never written. Other keys are ignored.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import re
from typing import Any

from openaclnn.core import products, status
from openaclnn.core.status import AclError
from openaclnn.runtime.errors import refuse

_LARGEST_FILE = 10 * 1024 * 1024
_DEEPEST = 100
_MARKS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[][{}]', re.DOTALL)
"""Matches complete strings, and brackets outside of strings."""

_current: dict[str, Any] = {}


def current() -> dict[str, Any]:
    """A copy of the configuration in force; empty before `aclInit` and after `aclFinalize`."""
    return copy.deepcopy(_current)


def device_name() -> str:
    """The name of the device in place of the NPU: the configuration's, else that of OPENACLNN_DEVICE, else "cpu"."""
    asked = os.environ.get("OPENACLNN_DEVICE") or "cpu"
    return str(_current.get("openaclnn", {}).get("device", asked))


def install(settings: dict[str, Any]) -> None:
    """Put a configuration in force."""
    global _current
    _current = settings
    products.configure_product(settings.get("openaclnn", {}).get("product"))
    status.share_messages(settings.get("err_msg_mode", "0") == "1")


def load(path: Any) -> dict[str, Any]:
    """Read and check a configuration file; a null or empty path means no settings."""
    if path is None or path in ("", b""):
        return {}
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise refuse(
            AclError.ACL_ERROR_INVALID_PARAM, "configPath", "a path or null", repr(path)
        ) from None
    try:
        with open(name, "rb") as file:
            text = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise refuse(
            AclError.ACL_ERROR_INVALID_FILE, "configPath", "a readable file", f"{name!r}: {error}"
        ) from None
    if len(text) > _LARGEST_FILE:
        code, expected = (
            AclError.ACL_ERROR_INVALID_FILE_SIZE,
            f"a file of at most {_LARGEST_FILE} bytes",
        )
        raise refuse(code, "configPath", expected, f"{name!r}, which is larger")
    try:
        settings = _parsed(text)
    except (ValueError, RecursionError) as error:
        raise _unparsed(name, "JSON", error) from None
    if not isinstance(settings, dict):
        raise _unparsed(name, "a JSON object", type(settings).__name__)
    _check(settings)
    return settings


def _parsed(data: bytes) -> Any:
    text = data.decode(json.detect_encoding(data), "surrogatepass")
    depth = 0
    for mark in _MARKS.findall(text):
        depth += (mark in "[{") - (mark in "]}")
        if depth > _DEEPEST:  # a thread's stack may hold no more
            raise ValueError(f"one nested deeper than {_DEEPEST} levels")
    return json.loads(text)


def _unparsed(name: str, expected: str, got: object) -> Exception:
    code = AclError.ACL_ERROR_PARSE_FILE
    return refuse(code, "configPath", expected, f"{name!r}: {got}")


def _check(settings: dict[str, Any]) -> None:
    def attribute(key: str, expected: str, got: object) -> Exception:
        return refuse(AclError.ACL_ERROR_FILE_ATTR_INVALID, key, expected, repr(got))

    mode = settings.get("err_msg_mode", "0")
    if mode not in ("0", "1"):
        raise attribute("err_msg_mode", '"0" or "1"', mode)
    if settings.get("dump"):
        code = AclError.ACL_ERROR_INVALID_DUMP_CONFIG
        raise refuse(
            code, "dump", "no dump section: nothing is dumped here", repr(settings["dump"])
        )
    profiler = settings.get("profiler")
    if profiler and not (isinstance(profiler, dict) and profiler.get("switch", "off") == "off"):
        code = AclError.ACL_ERROR_INVALID_PROFILING_CONFIG
        raise refuse(code, "profiler", 'the switch "off": nothing is profiled here', repr(profiler))
    section = settings.get("openaclnn", {})
    if not isinstance(section, dict):
        raise attribute("openaclnn", "an object", section)
    for key in ("product", "device", "sanitize"):
        if not isinstance(section.get(key, ""), str):
            raise attribute(f"openaclnn.{key}", "a string", section[key])
    if "product" in section:
        try:
            products.find_product(section["product"])
        except ValueError as error:
            raise attribute("openaclnn.product", "a known product", error) from None
    if "sanitize" in section:
        try:
            _sanitizer().Settings.parse(section["sanitize"])
        except ValueError as error:
            raise attribute("openaclnn.sanitize", "what OPENACLNN_SANITIZE may be", error) from None


def start_sanitizer() -> None:
    """Start the sanitizer, if the configuration in force asks for it."""
    asked = _current.get("openaclnn", {}).get("sanitize")
    if asked:
        _sanitizer().watch_process(_sanitizer().Settings.parse(asked))


def _sanitizer() -> Any:
    return importlib.import_module("openaclnn.sanitizer")  # a package above this one
