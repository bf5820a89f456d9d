"""A formula's source as Triton's: what is rewritten, and what formulas may not say."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

from openaclnn.engines.formulas import probe
from openaclnn.engines.formulas.words import WORDS

__all__ = ["DIVIDE", "translated"]

DIVIDE = "ieee_divide"  # Triton's own division is not to the last place

OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.BitAnd, ast.BitOr)
INSTEAD: dict[type[ast.AST], str] = {
    ast.Pow: probe.INSTEAD["**"],
    ast.And: probe.INSTEAD["and"],
    ast.Or: probe.INSTEAD["or"],
    ast.Not: probe.INSTEAD["not"],
    ast.For: "loop (write its turns one after another)",
    ast.While: "loop (write its turns one after another)",
    ast.AugAssign: probe.INSTEAD["="],
    ast.Attribute: "dot (import the word, and use it by its name)",
    ast.Return: "`return` before the end (write the rest in `else`)",
}
"""What newcomers may try, and what to write; of the rest only the text is told."""


def translated(function: Callable[..., Any], precise_words: frozenset[str]) -> str:
    """The source of a function and, after it, of the helpers that it calls.

    Every function takes PRECISE last, and hands it on to helpers and to the words that heed it.
    """
    texts: dict[str, str] = {}
    _translate(function, precise_words, texts)
    return "\n\n".join(texts.values()) + "\n"


def _translate(
    function: Callable[..., Any], precise_words: frozenset[str], texts: dict[str, str]
) -> None:
    texts[function.__name__] = ""  # known from now on, also to helpers that call each other
    lines, first = inspect.getsourcelines(function)
    (tree,) = ast.parse(textwrap.dedent("".join(lines))).body
    translator = _Translator(function, first, precise_words)
    texts[function.__name__] = ast.unparse(ast.fix_missing_locations(translator.definition(tree)))
    for helper in translator.helpers:
        if helper.__name__ not in texts:
            _translate(helper, precise_words, texts)


class _Translator(ast.NodeTransformer):
    """Of one function. Whatever has no method here is no part of the language."""

    def __init__(
        self, function: Callable[..., Any], first_line: int, precise_words: frozenset[str]
    ) -> None:
        self.function = function
        self.first_line = first_line
        self.precise_words = precise_words
        self.switches: set[str] = set()
        self.local: set[str] = set()
        self.helpers: list[Callable[..., Any]] = []

    def refuse(self, node: ast.AST, what: str) -> NoReturn:
        line = getattr(node, "lineno", 1) + self.first_line - 1
        file = self.function.__code__.co_filename
        raise TypeError(f"{self.function.__name__} ({file}, line {line}): a formula has no {what}")

    def generic_visit(self, node: ast.AST) -> NoReturn:
        self.refuse(node, INSTEAD.get(type(node)) or f"`{ast.unparse(node)}`")

    def definition(self, node: ast.stmt) -> ast.stmt:
        if not isinstance(node, ast.FunctionDef):
            self.refuse(node, f"`{ast.unparse(node)}` (write `def`)")
        own = node.args
        if own.vararg or own.kwarg or own.defaults or any(own.kw_defaults):
            self.refuse(node, "`*`, `**` or defaults among its parameters")
        parameters = {
            each.arg: "" if each.annotation is None else ast.unparse(each.annotation)
            for each in (*own.posonlyargs, *own.args, *own.kwonlyargs)
        }
        self.local.update(parameters)
        self.switches.update(name for name, kind in parameters.items() if kind == "bool")
        marked = (f"{n}: tl.constexpr" if n in self.switches else n for n in parameters)
        head = f"def {node.name}({', '.join(marked)}, PRECISE: tl.constexpr): pass"
        (made,) = ast.parse(head).body
        assert isinstance(made, ast.FunctionDef)
        made.body = self.block(node.body, last=True)
        return made

    def block(self, body: list[ast.stmt], last: bool) -> list[ast.stmt]:
        """Statements; only the last one of a function's end may return."""
        made: list[ast.stmt] = []
        for number, statement in enumerate(body):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring
            ends = last and number == len(body) - 1
            if isinstance(statement, ast.If):
                made.append(self.branches(statement, ends))
            elif isinstance(statement, ast.Return) and ends and statement.value is not None:
                made.append(ast.Return(self.visit(statement.value)))
            else:
                made.append(self.visit(statement))
        return made

    def branches(self, node: ast.If, ends: bool) -> ast.If:
        then, otherwise = self.block(node.body, ends), self.block(node.orelse, ends)
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
        made = ast.Assign([target], self.visit(value))
        self.local.add(target.id)
        return made

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            self.refuse(node, f"`{ast.unparse(node)}`")
        return ast.Constant(float(node.value))  # Triton would compute whole numbers as such

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.local:
            return node
        found = self.function.__globals__.get(node.id)
        if isinstance(found, (int, float)) and not isinstance(found, bool):
            return ast.Constant(float(found))
        self.refuse(node, f"`{node.id}` (names are its own, or numbers of its file)")

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if not isinstance(node.op, OPERATORS):
            self.refuse(node, INSTEAD.get(type(node.op)) or f"operator of `{ast.unparse(node)}`")
        left, right = self.visit(node.left), self.visit(node.right)
        literal = isinstance(left, ast.Constant) and isinstance(right, ast.Constant)
        if isinstance(node.op, ast.Div) and not literal:
            return _call(DIVIDE, left, right)
        return ast.BinOp(left, node.op, right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if not isinstance(node.op, (ast.USub, ast.Invert)):
            self.refuse(node, INSTEAD.get(type(node.op)) or f"`{ast.unparse(node)}`")
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Invert):  # which the interpreter has for blocks alone
            return ast.Compare(operand, [ast.Eq()], [ast.Constant(0)])
        if isinstance(operand, ast.Constant) and isinstance(operand.value, float):
            return ast.Constant(-operand.value)
        return ast.BinOp(operand, ast.Mult(), ast.Constant(-1.0))  # Triton's is 0 - x: no -0

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
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        found = None if called in self.local else self.function.__globals__.get(called)
        arguments = [self.visit(each) for each in node.args]
        word = getattr(found, "__name__", "")
        if WORDS.get(word) is found and found is not None and not node.keywords:
            precise = [ast.Name("PRECISE")] if word in self.precise_words else []
            return _call(word, *arguments, *precise)
        if not isinstance(found, FunctionType) or found.__module__ != self.function.__module__:
            self.refuse(
                node, f"`{ast.unparse(node.func)}` (it calls {', '.join(WORDS)}, and its own file)"
            )
        self.helpers.append(found)
        named = [ast.keyword(own.arg, self.visit(own.value)) for own in node.keywords]
        made = _call(found.__name__, *arguments)
        made.keywords = [*named, ast.keyword("PRECISE", ast.Name("PRECISE"))]
        return made


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name), list(arguments), [])
