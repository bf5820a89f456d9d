"""Functions that C++ calls through a C interface: they are given no block of their own, and C++ may raise an exception in them."""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite import ir

from openaclnn.engines.machine.code import Array, Code
from openaclnn.engines.machine.kinds import I64

__all__ = ["external_block", "let_exceptions_pass", "name_block"]


def name_block(name: str, address: int) -> None:
    """Let functions find a block by its name when they are loaded, so that their code is the same in every process."""
    llvm.add_symbol(name, address)


def external_block(code: Code, name: str) -> Array:
    """The block of this name."""
    module = code.builder.module
    block = module.globals.get(name) or ir.GlobalVariable(module, I64, name)
    return code.slots(code.value(code.builder.ptrtoint(block, I64)))


def let_exceptions_pass(code: Code) -> None:
    """C++'s exceptions may pass the function being written."""
    attributes = code.builder.function.attributes
    attributes.discard("nounwind")
    attributes.add("uwtable")
