"""What the rules find: `Finding`, the table of `RULES`, and the `Settings` that say what becomes of a finding."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from openaclnn.core.products import find_product
from openaclnn.sanitizer.events import Call, Site

RULES = {
    # Objects
    "call-before-init": "A function that needs the runtime is called before aclInit or aclnnInit.",
    "call-after-finalize": "A function that needs the runtime is called after aclFinalize.",
    "double-destroy": "An object is destroyed that was destroyed before.",
    "use-after-destroy": "A destroyed object is used.",
    "unknown-handle": "A pointer that no function has returned is used as an object.",
    "failed-result-used": "A call failed, nobody looked at its status, and its result is used.",
    "destroyed-late": "An object is destroyed after the context, the device or the runtime that had it.",
    "leak": "An object is never destroyed, or memory never freed.",
    "executor-reused": "Phase two runs an executor again that is not repeatable.",
    "executor-of-another-operator": "Phase two gets the executor of another operator.",
    "executor-never-run": "Phase one makes an executor that phase two never runs.",
    "workspace-too-small": "Phase two gets less workspace than phase one asked for, or none.",
    # Memory
    "out-of-bounds": "A view or a copy reaches past the size that was asked for, be it into the padding.",
    "overlapping-output": "An output shares memory with itself, with another output, or with an input other than element for element.",
    "misaligned-address": "An address is not aligned as the interface asks for.",
    "use-after-free": "Freed memory is used.",
    "double-free": "Memory is freed that was freed before.",
    "wrong-memory": "Host memory stands where device memory is meant, or the reverse, or memory is freed that was never allocated.",
    "uninitialised-read": "An operator reads, or a copy takes to the host, bytes that nobody has written.",
    "wrong-data-type": "A tensor describes data of a wider type than its own.",
    "stale-result": "A result is copied to the host of which no operator wrote a part.",
    # Order
    "free-in-use": "Memory is freed while queued work still uses it.",
    "unordered-read": "Memory is read that queued work writes, and nothing makes the reader wait for it.",
    "unordered-write": "Memory is written that queued work reads or writes, and nothing makes the writer wait for it.",
    # Values
    "target-out-of-range": "A class index is neither a class nor ignoreIndex.",
    "nonfinite-born": "An operator makes NaN or infinity of finite inputs.",
    "zero-total-weight": "A mean divides by a total weight of zero.",
    # Products
    "product-refuses": "A call that succeeds here is refused by the product.",
    "product-differs": "A call that succeeds here is computed otherwise by the product.",
    # Ourselves
    "sanitizer-failure": "The sanitizer itself failed; what it says of this call is incomplete.",
}
"""The rules by name, each in a sentence."""


@dataclass(frozen=True)
class Finding:
    """A broken rule: at which call, by which argument (a C parameter's name, or empty), why, and where the object was before."""

    rule: str
    call: Call | None
    argument: str
    message: str
    history: Sequence[tuple[str, Site]] = ()

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise KeyError(self.rule)

    def text(self) -> str:
        """As it is printed."""
        what = f"{self.call.name}: " if self.call else ""
        argument = f"{self.argument}: " if self.argument else ""
        lines = [f"openaclnn sanitizer: {self.rule}: {what}{argument}{self.message}"]
        places = [("called", self.call.site)] if self.call else []
        for word, site in (*places, *self.history):
            frames = site.frames
            lines.append(
                f"    {word} at {frames[0]}" if frames else f"    {word} at an unknown place"
            )
            lines.extend(f"        from {frame}" for frame in frames[1:])
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """As it stands in the JSON file."""

        def frames(site: Site) -> list[dict[str, Any]]:
            return [vars(frame) for frame in site.frames]

        return {
            "rule": self.rule,
            "sentence": RULES.get(self.rule, ""),
            "call": self.call.name if self.call else None,
            "argument": self.argument or None,
            "message": self.message,
            "site": frames(self.call.site) if self.call else [],
            "history": [{"event": word, "site": frames(site)} for word, site in self.history],
        }


@dataclass(frozen=True)
class Settings:
    """What OPENACLNN_SANITIZE asks for: `1` for text on stderr, `json:FILE`, or both, and options, between commas."""

    text: bool = False
    json: str = ""  # %p in it is the process
    exitcode: int = 0
    suppress: frozenset[str] = frozenset()
    product: str = ""
    workspace: int = 512  # what phase one asks for at least, as on products: a program that gives none is wrong there

    @classmethod
    def parse(cls, text: str) -> Settings | None:
        """The settings of a text, None for one that switches nothing on; ValueError for one that means nothing."""
        words = [word.strip() for word in text.split(",")]
        if words[0] in ("", "0"):
            return None
        values: dict[str, Any] = {}
        suppressed: list[str] = []
        last = ""
        for word in words:
            key, mark, value = word.partition("=")
            if word == "1":
                values["text"] = True
            elif word.startswith("json:"):
                values["json"] = _file(word.removeprefix("json:"))
            elif mark and key in ("exitcode", "workspace"):
                values[key] = _number(key, value)
            elif mark and key == "product":
                find_product(value)  # an unknown name is told
                values[key] = value
            elif (mark and key == "suppress") or (last == "suppress" and not mark):
                suppressed.append(value if mark else word)
                key = "suppress"
            else:
                options = "1, json:FILE, exitcode=, suppress=, product= or workspace="
                raise ValueError(f"expected {options}, got {word!r}")
            last = key
        if not values.get("json"):
            values["text"] = True
        return cls(**values, suppress=known_rules(suppressed))


def _number(key: str, value: str) -> int:
    if not value.isdecimal():
        raise ValueError(f"{key}: expected a number, got {value!r}")
    return int(value)


def _file(name: str) -> str:
    folder = os.path.dirname(name) or "."
    if not name or not os.access(folder, os.W_OK) or os.path.isdir(name):
        raise ValueError(f"json: expected a file that can be written, got {name!r}")
    return name


def known_rules(names: Iterable[str]) -> frozenset[str]:
    """The names, none of which is misspelt."""
    unknown = sorted(set(names) - RULES.keys())
    if unknown:
        raise ValueError(f"suppress: expected any of {', '.join(RULES)}, got {unknown[0]!r}")
    return frozenset(names)


def fault(error: Exception, call: Call | None = None) -> Finding:
    """A fault of a rule is told and stays out of the program's way."""
    text = "".join(traceback.format_exception(error)).rstrip()
    return Finding("sanitizer-failure", call, "", text)
