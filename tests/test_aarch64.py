"""Machine code for AArch64, written and read on any machine: by a process that takes itself for one."""

from __future__ import annotations

import functools
import json
import re

import pytest

from conftest import run_python

pytest.importorskip("llvmlite")

ELSEWHERE = """
import json, sys
import llvmlite.binding as llvm

class Features(dict):
    def flatten(self):
        return ""

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
llvm.get_process_triple = lambda: "aarch64-unknown-linux-gnu"
llvm.get_host_cpu_name = lambda: sys.argv[1]
llvm.get_host_cpu_features = Features

from openaclnn.engines.cpu.formulas.forms import Signature, formula_form, kernel_address
from openaclnn.engines.formulas import FORMULAS
from openaclnn.engines.machine import cache

texts = []
target = cache._target(3)
target.emit_object = target.emit_assembly
cache._target = lambda *given: target
cache._read = cache._write = lambda *given: None
cache._load = lambda text: texts.append(text) or len(texts)

found = {}
dtypes = "f32", "f16", "bf16"
for place, (name, formula) in enumerate(FORMULAS.items(), start=int(sys.argv[2])):
    form = formula_form(formula, dict.fromkeys(formula.numbers, 1.0), dict.fromkeys(formula.switches, False))
    dtype = dtypes[place % 3]
    count = len(texts)
    kernel_address(form, Signature((dtype,) * len(formula.values), dtype, dtype))
    found[f"{name} {dtype}"] = texts[count]
print(json.dumps(found))
"""

ROWS = (
    ELSEWHERE.split("found = {}", maxsplit=1)[0]
    + """
import itertools
import openaclnn.engines.formulas.cross_entropy, openaclnn.engines.formulas.softmax
from openaclnn.engines.cpu.classes.row_formulas import RowKernel
from openaclnn.engines.formulas.rows import ROW_FORMULAS

found = {}
for name in ("softmax", "softmax_cross_entropy"):
    kernel = RowKernel(ROW_FORMULAS[name])
    for plan, variant in itertools.product(list(kernel.variants())[:4:3], range(3)):
        kernel.kernels(plan, variant)
        found[f"{name} {plan.compute} {variant}"] = texts[-1]
print(json.dumps(found))
"""
)


@functools.cache
def assembly(cpu: str, place: int = 0, program: str = ELSEWHERE) -> dict[str, str]:
    """Of every formula in a dtype, the next in the next, from this place on."""
    texts: dict[str, str] = json.loads(run_python(program, cpu, str(place)).stdout)
    return texts


@pytest.mark.parametrize(("place", "cpu"), [(0, "cortex-a72"), (1, "neoverse-v2")])
def test_formulas_are_vector_code_that_calls_nothing(place: int, cpu: str) -> None:
    for name, text in assembly(cpu, place).items():
        assert not re.findall(r"^\s+blr?\s.*", text, re.MULTILINE), name
        assert re.search(r"^\s+f\w+\s+v\d+\.(4s|8h)", text, re.MULTILINE), name


def test_row_formulas_are_vector_code() -> None:
    kernels = assembly("neoverse-v2", program=ROWS)
    assert len(kernels) == 2 * 2 * 3
    for name, text in kernels.items():
        assert re.search(r"^\s+fmla\s+v\d+\.4s", text, re.MULTILINE), name
