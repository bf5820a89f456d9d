"""A formula's source as Triton's: what is written otherwise there."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

from openaclnn.engines.formulas.language import Reader, called, definitions

_PRECISE = ast.keyword("PRECISE", ast.Name("PRECISE"))
DIVIDE = "ieee_divide"  # Triton's own division is not to the last place
NUMBER = "number"  # of the source, as a value


def translated(function: Callable[..., Any], precise_words: frozenset[str]) -> str:
    """The source of a function and, after it, of the helpers that it calls.

    Every function takes PRECISE last, and hands it on to helpers and to the words that heed it.
    """
    functions = definitions(function, partial(_Translator, precise_words=precise_words))
    return "\n\n".join(ast.unparse(ast.fix_missing_locations(each)) for each in functions) + "\n"


class _Translator(Reader):
    """Of one function."""

    def __init__(self, function: Callable[..., Any], precise_words: frozenset[str]) -> None:
        super().__init__(function)
        self.precise_words = precise_words

    def definition(self) -> ast.FunctionDef:
        read = super().definition()
        marked = (f"{n}: tl.constexpr" if n in self.switches else n for n in self.parameters)
        head = f"def {read.name}({', '.join(marked)}, PRECISE: tl.constexpr): pass"
        (result,) = ast.parse(head).body
        assert isinstance(result, ast.FunctionDef)
        result.body = read.body
        return result

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        visited = super().visit_BinOp(node)
        assert isinstance(visited, ast.BinOp)
        literal = isinstance(visited.left, ast.Constant) and isinstance(visited.right, ast.Constant)
        if isinstance(visited.op, ast.Div) and not literal:
            by = visited.right
            if isinstance(by, ast.Constant):
                by = called(NUMBER, [by])
            return called(DIVIDE, [visited.left, by], [_PRECISE])
        return visited

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        visited = super().visit_UnaryOp(node)
        assert isinstance(visited, ast.UnaryOp)
        operand = visited.operand
        if isinstance(visited.op, ast.Invert):  # which the interpreter has for blocks alone
            return ast.Compare(operand, [ast.Eq()], [ast.Constant(0)])
        if isinstance(operand, ast.Constant) and isinstance(operand.value, float):
            return ast.Constant(-operand.value)
        return ast.BinOp(operand, ast.Mult(), ast.Constant(-1.0))  # Triton's is 0 - x: no -0

    def word(self, name: str, arguments: list[ast.expr]) -> ast.Call:
        precise = [_PRECISE] if name in self.precise_words else []
        return called(name, arguments, precise)

    def helper(self, name: str, arguments: list[ast.expr], named: list[ast.keyword]) -> ast.Call:
        return super().helper(name, arguments, [*named, _PRECISE])
