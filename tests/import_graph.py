"""Who imports whom: read from the source, every import statement counted wherever it stands."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

Graph = Mapping[str, set[str]]
Layers = Sequence[Sequence[str]]


def read_graph(package: Path) -> dict[str, set[str]]:
    """The package's modules, each with those of them that it imports."""
    files = {_module_name(package, path): path for path in package.rglob("*.py")}
    return {name: _imports(name, path, files) for name, path in files.items()}


def _module_name(package: Path, path: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _imports(name: str, path: Path, modules: Mapping[str, Path]) -> set[str]:
    imported: set[str] = set()
    for node in _statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _source(node, name.split("."), path.name == "__init__.py")
            for alias in node.names:  # a module of the package, or a name in it
                inner = f"{source}.{alias.name}"
                imported.add(inner if inner in modules else source)
    return (imported & modules.keys()) - {name}


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Those inside, at any depth; expressions, most of a file, have none."""
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        for inner in getattr(node, name, ()):
            yield inner
            yield from _statements(inner)


def _source(node: ast.ImportFrom, parts: list[str], is_package: bool) -> str:
    """What stands behind `from`, in full."""
    above = parts[: len(parts) - node.level + is_package] if node.level else []
    return ".".join([*above, *([node.module] if node.module else [])])


def circle(graph: Graph) -> list[str]:
    """Modules that import each other in a ring; none where there is no such ring."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def package_of(module: str, names: Iterable[str]) -> str | None:
    """The package a module is in; the root is a package without anything inside."""
    inside = (name for name in names if module == name or module.startswith(f"{name}."))
    return max((name for name in inside if "." in name or name == module), key=len, default=None)


def arrows(graph: Graph, layers: Layers) -> set[tuple[str, str]]:
    """Which package imports from which other."""
    names = [name for layer in layers for name in layer]
    pairs = {
        (package_of(module, names), package_of(other, names))
        for module, others in graph.items()
        for other in others
    }
    return {(one, other) for one, other in pairs if one and other and one != other}


def upward(graph: Graph, layers: Layers) -> list[tuple[str, str]]:
    """Packages that import from their own layer, or from one above."""
    level = {name: number for number, layer in enumerate(layers) for name in layer}
    return sorted(
        (one, other) for one, other in arrows(graph, layers) if level[other] <= level[one]
    )
