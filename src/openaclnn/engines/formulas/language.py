"""The language of formulas: what one may say, read from its source before any engine meets it."""

from __future__ import annotations

import ast
import contextlib
import graphlib
import hashlib
import inspect
import linecache
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, NoReturn

from openaclnn.engines.formulas.words import LARGEST, WORDS

OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.BitAnd, ast.BitOr)
MACHINERY = {f"{__package__}{own}" for own in ("", ".language", ".rows", ".special", ".words")}
"""What runs a formula, and none is written in."""

RECURSION = "function that calls itself"
LOOP = "loop (write its turns one after another)"
INSTEAD: dict[type[ast.AST], str] = {
    ast.Pow: "`**` (write a product, or exp and log)",
    ast.And: "`and` (write `&` between comparisons in parentheses)",
    ast.Or: "`or` (write `|` between comparisons in parentheses)",
    ast.Not: "`not` (exchange the two branches, or write `~` before a comparison in parentheses)",
    **dict.fromkeys((ast.For, ast.While, ast.ListComp, ast.SetComp, ast.GeneratorExp), LOOP),
    ast.Lambda: "`lambda` (write a function with `def`, in the same file)",
    ast.AugAssign: "assignment that changes a value in place (write `name = name * ...`)",
    ast.Attribute: "dot (import the word, and use it by its name)",
    ast.Return: "`return` before the end, nor without a value (write the rest in `else`)",
}
"""What newcomers may try, and what to write; of the rest only the text is told."""


def definitions(
    function: Callable[..., Any], reader: Callable[[Callable[..., Any]], Reader]
) -> list[ast.FunctionDef]:
    """A function and the helpers that it calls, as a reader has them; TypeError says where one leaves the language."""
    readings: dict[str, tuple[Reader, ast.FunctionDef]] = {}
    waiting = [function]
    for function in waiting:
        if function.__name__ not in readings:
            reading = reader(function)
            readings[function.__name__] = reading, reading.definition()
            waiting += reading.helpers
        elif readings[function.__name__][0].function is not function:
            raise TypeError(f"a formula calls two functions with the name {function.__name__}")
    calls = {name: [each.__name__ for each in reading.helpers] for name, (reading, _) in readings.items()}  # fmt: skip
    try:
        graphlib.TopologicalSorter(calls).prepare()
    except graphlib.CycleError as error:
        reading, definition = readings[error.args[1][0]]
        reading.refuse(definition, f"{RECURSION}: {' calls '.join(error.args[1][::-1])}")
    return [definition for _, definition in readings.values()]


def is_of_the_package(function: Callable[..., Any]) -> bool:
    """Whether a test has read the function already, as it reads all of the package's."""
    return (function.__module__ or "").startswith(f"{__name__.partition('.')[0]}.")


@contextlib.contextmanager
def tried(function: Callable[..., Any]) -> Iterator[None]:
    """What a trial of a function raises is a TypeError with the name, file and line of its author's: a helper's, perhaps."""
    if not isinstance(function, FunctionType):
        raise TypeError(f"a formula is a function, not {function!r}")
    try:
        yield
    except Exception as error:
        code, line = function.__code__, function.__code__.co_firstlineno
        for frame, number in traceback.walk_tb(error.__traceback__):
            if frame.f_globals.get("__name__") not in MACHINERY:
                code, line = frame.f_code, number
        said = f"a formula has no {RECURSION}" if isinstance(error, RecursionError) else error
        raise TypeError(f"{code.co_name} ({code.co_filename}, line {line}): {said}") from None


class Reader(ast.NodeTransformer):
    """Of one function. Whatever has no method here is no part of the language; who compiles sources writes some anew."""

    words: Mapping[str, Callable[..., Any]] = WORDS

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.first_line = function.__code__.co_firstlineno
        self.parameters: list[str] = []
        self.switches: set[str] = set()
        self.local: set[str] = set()
        self.helpers: list[Callable[..., Any]] = []

    def refuse(self, node: ast.AST, what: str) -> NoReturn:
        """With the line of a node of the author's."""
        line = getattr(node, "lineno", 1) + self.first_line - 1
        file = self.function.__code__.co_filename
        raise TypeError(f"{self.function.__name__} ({file}, line {line}): a formula has no {what}")

    def generic_visit(self, node: ast.AST) -> NoReturn:
        self.refuse(node, INSTEAD.get(type(node)) or f"`{ast.unparse(node).partition(chr(10))[0]}`")

    def definition(self) -> ast.FunctionDef:
        """The function, read from its head to its end."""
        if self.function.__code__.co_name == "<lambda>":
            self.refuse(ast.AST(), INSTEAD[ast.Lambda])
        lines, _ = inspect.getsourcelines(self.function)
        (node,) = ast.parse(textwrap.dedent("".join(lines))).body
        if not isinstance(node, ast.FunctionDef):
            self.refuse(node, "`async` (write `def`)")
        args = node.args
        if args.vararg or args.kwarg or args.defaults or any(args.kw_defaults):
            self.refuse(node, "`*`, `**` or defaults among its parameters")
        for each in (*args.posonlyargs, *args.args, *args.kwonlyargs):
            self.parameters.append(each.arg)
            if each.annotation is not None and ast.unparse(each.annotation) == "bool":
                self.switches.add(each.arg)
        self.local.update(self.parameters)
        node.body = self.block(node.body, last=True)
        return node

    def block(self, body: list[ast.stmt], last: bool) -> list[ast.stmt]:
        """Statements; only the last one of a function's end may return."""
        statements: list[ast.stmt] = []
        for number, statement in enumerate(body):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring
            ends = last and number == len(body) - 1
            if isinstance(statement, ast.If):
                statements.append(self.branches(statement, ends))
            elif isinstance(statement, ast.Return) and ends and statement.value is not None:
                statements.append(ast.Return(self.visit(statement.value)))
            else:
                statements.append(self.visit(statement))
            if ends and not isinstance(statement, (ast.If, ast.Return)):
                self.refuse(statement, "end without `return`")
        return statements

    def branches(self, node: ast.If, ends: bool) -> ast.If:
        then, otherwise = self.block(node.body, ends), self.block(node.orelse, ends)
        if ends and not otherwise:
            self.refuse(node, "end without `return`, which one way of this `if` has")
        return ast.If(self.switch(node.test), then, otherwise)

    def switch(self, test: ast.expr) -> ast.expr:
        if isinstance(test, ast.Name) and test.id in self.switches:
            return test
        if isinstance(test, (ast.UnaryOp, ast.BoolOp)):
            self.refuse(test, INSTEAD.get(type(test.op)) or f"`{ast.unparse(test)}`")
        self.refuse(test, f"`if {ast.unparse(test)}`: only for its `bool`s (write `where`)")

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        (target, *more) = node.targets
        if more or not isinstance(target, ast.Name):
            self.refuse(node, f"`{ast.unparse(node)}` (give one name one value)")
        return self.assigned(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.Assign:
        if node.value is None or not isinstance(node.target, ast.Name):
            self.refuse(node, f"`{ast.unparse(node)}` (give one name one value)")
        return self.assigned(node.target, node.value)

    def assigned(self, target: ast.Name, value: ast.expr) -> ast.Assign:
        assignment = ast.Assign([target], self.visit(value))
        self.local.add(target.id)
        return assignment

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            self.refuse(node, f"`{ast.unparse(node)}`")
        return self.number(node, node.value)

    def number(self, node: ast.expr, value: float) -> ast.Constant:
        """All are FLOATs, whole ones too."""
        if LARGEST < abs(value) < float("inf"):
            self.refuse(node, f"`{ast.unparse(node)}`, which is beyond FLOAT's range")
        return ast.Constant(float(value))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.local:
            return node
        number = self.function.__globals__.get(node.id)
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            return self.number(node, number)
        self.refuse(node, f"`{node.id}` (names are its own, or numbers of its file)")

    def visit_Tuple(self, node: ast.Tuple) -> ast.expr:
        return ast.Tuple([self.visit(each) for each in node.elts], ast.Load())  # several results

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if not isinstance(node.op, OPERATORS):
            self.refuse(node, INSTEAD.get(type(node.op)) or f"operator of `{ast.unparse(node)}`")
        return ast.BinOp(self.visit(node.left), node.op, self.visit(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if not isinstance(node.op, (ast.USub, ast.Invert)):
            self.refuse(node, INSTEAD.get(type(node.op)) or f"`{ast.unparse(node)}`")
        return ast.UnaryOp(node.op, self.visit(node.operand))

    def visit_BoolOp(self, node: ast.BoolOp) -> NoReturn:
        self.refuse(node, INSTEAD[type(node.op)])

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        if len(node.ops) > 1:
            self.refuse(node, "comparison of three (write two, and `&` between them)")
        if isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
            self.refuse(node, f"`{ast.unparse(node)}`")
        return ast.Compare(
            self.visit(node.left), node.ops, [self.visit(each) for each in node.comparators]
        )

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        return ast.IfExp(self.switch(node.test), self.visit(node.body), self.visit(node.orelse))

    def visit_Call(self, node: ast.Call) -> ast.Call:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        function = None if name in self.local else self.function.__globals__.get(name)
        arguments = [self.visit(each) for each in node.args]
        if name == self.function.__name__ and name not in self.local:
            self.refuse(node, f"{RECURSION} (a word of that name is imported under another)")
        word = getattr(function, "__name__", "")
        if self.words.get(word) is function and function is not None and not node.keywords:
            return self.word(word, arguments)
        if not isinstance(function, FunctionType) or _home(function) != _home(self.function):
            calls = f"it calls {', '.join(self.words)}, and functions of its package"
            self.refuse(node, f"`{ast.unparse(node.func)}` ({calls})")
        self.helpers.append(function)
        named = [ast.keyword(keyword.arg, self.visit(keyword.value)) for keyword in node.keywords]
        return self.helper(function.__name__, arguments, named)

    def word(self, name: str, arguments: list[ast.expr]) -> ast.Call:
        return called(name, arguments)

    def helper(self, name: str, arguments: list[ast.expr], named: list[ast.keyword]) -> ast.Call:
        return called(name, arguments, named)


def _home(function: Callable[..., Any]) -> str:
    """The package whose functions call each other; a module by itself where there is none."""
    return function.__module__.rpartition(".")[0] or function.__module__


def functions_of(text: str, scope: dict[str, Any]) -> list[Callable[..., Any]]:
    """A text's functions, which see the scope, and whose source `inspect` finds again as if it lay in a file."""
    file = f"<openaclnn {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    # It asks here before it asks the disk.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    defined: dict[str, Any] = {}
    exec(compile(text, file, "exec"), scope, defined)
    return list(defined.values())


def called(
    name: str, arguments: list[ast.expr], named: list[ast.keyword] | None = None
) -> ast.Call:
    """A call of a function by its name."""
    return ast.Call(ast.Name(name), arguments, named or [])
