"""Results of several runs on one machine as one: what was measured again replaces what was measured before."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from openaclnn.bench.tables.cells import Row

__all__ = ["command_of", "merged", "narrowed"]

PROGRAM = ("openaclnn", "bench")
FILES = ("--json", "--markdown", "--csv", "--html", "--plots")

_KEYS = {
    "rows": ("operator", "regime", "variant", "dtype", "threads", "contender"),
    "calls": ("operator", "regime", "variant", "dtype", "contender"),
    "training": ("operator", "regime", "variant", "dtype", "threads", "contender"),
    "overrides": ("operator", "variant", "dtype", "threads", "contender"),
    "first_calls": ("operator", "contender", "cache"),
    "memory": ("operator", "contender"),
}


def command_of(arguments: Sequence[str]) -> str:
    """The command to paste for the same results: without the files they were written to."""
    kept: list[str] = []
    files = False
    for word in arguments:
        named = files and not word.startswith("--")  # --json may stand alone
        files = word in FILES
        if not (files or named or word.startswith(tuple(f"{name}=" for name in FILES))):
            kept.append(word)
    return shlex.join([*PROGRAM, *kept])


def narrowed(command: str, operator: str) -> str:
    """The command for an operator's speed alone; its own filters stay."""
    words = shlex.split(command)
    while "--section" in words:
        at = words.index("--section")
        del words[at : at + 2]
    only = [] if "--only" in words else ["--only", operator]
    return shlex.join([*words, "--section", "speed", *only])


def merged(reports: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One result for each machine, device and mode, in the order in which they come first."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for results in reports:
        machine = results["machine"]
        where = (machine["cpu"], machine["cores"], machine.get("gpu"), results["mode"])
        groups.setdefault(where, []).append(results)
    return [_together(group) for group in groups.values()]


def _together(group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    copies = [results["copy_gbps"] for results in group if results["copy_gbps"]]
    whole = {
        **group[-1],
        "commands": list(dict.fromkeys(results["command"] for results in group)),
        "dates": list(dict.fromkeys(results["date"] for results in group)),
        "copy_gbps": max(copies, default=None),
    }
    for name, keys in _KEYS.items():
        whole[name] = _in_order(
            [
                row | {"command": results["command"]}
                for results in group
                for row in results.get(name, ())
            ],
            keys,
        )
    return whole


def _in_order(rows: Iterable[Row], keys: Sequence[str]) -> list[Row]:
    """The last of each key; operators, cases and numbers of threads lie together, as they came first."""
    last = {tuple(row[key] for key in keys): row for row in rows}
    places: list[dict[tuple[Any, ...], int]] = [{} for _ in keys]
    for key in last:
        for depth, known in enumerate(places):
            known.setdefault(key[: depth + 1], len(known))

    def place(key: tuple[Any, ...]) -> list[int]:
        return [known[key[: depth + 1]] for depth, known in enumerate(places)]

    return [last[key] for key in sorted(last, key=place)]
