"""The environment's variables: read once, by the first call that asks; what means nothing is refused every time."""

from __future__ import annotations

import pytest

from conftest import run_python

START = """
import os
import numpy as np
import openaclnn
from openaclnn import aclnn

def refusal(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return "none"

few, many = np.ones(3, np.float32), np.ones(1 << 20, np.float32)
def plain(x=few):
    return openaclnn.elu_backward(x, x)
def engine():
    return openaclnn.explain(openaclnn.elu_backward, few, few).engine
def product():
    return openaclnn.explain(openaclnn.elu_backward, few, few).product
"""


def script(body: str, **environment: str) -> list[str]:
    """What a program prints with these variables."""
    return run_python(START + body, **environment).stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("OPENACLNN_ENGINE", "unknown engine 'junk'; known engines: cpu, triton, numpy"),
        ("OPENACLNN_PRODUCT", "unknown product 'junk'; known products: default, 950, a3"),
    ],
)
def test_a_name_that_is_not_known_is_refused_by_every_call(variable: str, says: str) -> None:
    said = script("for _ in range(3): print(refusal(plain))", **{variable: "junk"})
    assert len(said) == 3
    assert all(line.startswith(says) for line in said), said


def test_phase_one_refuses_such_a_name_too() -> None:
    body = """
given = (few, 1.0, 1.0, 1.0, False, few, np.empty(3, np.float32))
for _ in range(2):
    print(aclnn.aclnnEluBackwardGetWorkspaceSize(*given)[0], "junk" in aclnn.aclGetRecentErrMsg())
"""
    for variable in ("OPENACLNN_ENGINE", "OPENACLNN_PRODUCT"):
        assert script(body, **{variable: "junk"}) == ["561000 True"] * 2


def test_a_block_needs_nothing_of_the_environment() -> None:
    body = """
with openaclnn.use_engine("numpy"), openaclnn.use_product("a2"):
    print(refusal(plain))
print(refusal(plain) == "none")
"""
    assert script(body, OPENACLNN_ENGINE="junk", OPENACLNN_PRODUCT="junk") == ["none", "False"]


def test_engine_and_product_are_read_once() -> None:
    body = """
print(engine(), product())
os.environ["OPENACLNN_ENGINE"], os.environ["OPENACLNN_PRODUCT"] = "cpu", "950"
print(engine(), product())
"""
    assert script(body, OPENACLNN_ENGINE="numpy", OPENACLNN_PRODUCT="910b") == ["numpy a2"] * 2
    unset = """
print(product())
os.environ["OPENACLNN_PRODUCT"] = "950"
print(product())
"""
    assert script(unset) == ["default"] * 2


def test_a_number_of_threads_that_cannot_be_is_refused_by_every_large_call() -> None:
    body = """
for _ in range(3):
    print(refusal(lambda: plain(many)))
print(refusal(plain))
openaclnn.set_num_threads(2)
print(refusal(lambda: plain(many)))
"""
    wanted = "OPENACLNN_NUM_THREADS must be a positive integer, got 'two'"
    assert script(body, OPENACLNN_NUM_THREADS="two") == [wanted] * 3 + ["none"] * 2


def test_memory_for_results_is_read_once_and_bounded_by_the_address_space() -> None:
    body = """
for _ in range(2):
    print(refusal(lambda: plain(many)))
print(refusal(plain))
openaclnn.set_result_memory(1 << 22)
print(refusal(lambda: plain(many)))
"""
    wanted = "OPENACLNN_RESULT_MEMORY must be a number of bytes, got '1.5G'"
    assert script(body, OPENACLNN_RESULT_MEMORY="1.5G") == [wanted] * 2 + ["none"] * 2
    read = """
from openaclnn.core import results
plain(many)
os.environ["OPENACLNN_RESULT_MEMORY"] = "7"
plain(many)
print(results.limit(), results.kept_bytes())
"""
    assert script(read, OPENACLNN_RESULT_MEMORY=str(5 << 20)) == [f"{5 << 20} {4 << 20}"]
    assert script(read, OPENACLNN_RESULT_MEMORY="0") == ["0 0"]
    bounded = """
import resource
from openaclnn.core import results
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))
openaclnn.set_result_memory(1 << 40)
print(results.limit() <= 1 << 27)
"""
    assert script(bounded) == ["True"]


def test_a_python_without_its_lock_is_refused() -> None:
    body = """
import sys
for locked in (True, False):
    sys._is_gil_enabled = lambda: locked
    for name in [name for name in sys.modules if name.startswith("openaclnn")]:
        del sys.modules[name]
    try:
        import openaclnn.testing
        print("imported")
    except ImportError as error:
        print(error)
"""
    says = "openaclnn needs the interpreter's lock, and this free-threaded Python runs without it; start it with PYTHON_GIL=1 or -X gil=1"
    assert script(body) == ["imported", says]


def test_a_library_that_another_thread_is_importing_is_not_there_yet() -> None:
    body = """
import sys, types
for name in ("torch", "cupy"):
    sys.modules[name] = types.ModuleType(name)
class Other:
    __array_interface__ = few.__array_interface__
def two_phases():
    status, size, executor = aclnn.aclnnEluGetWorkspaceSize(few, 1.0, 1.0, 1.0, few.copy())
    assert status == aclnn.aclnnElu(None, size, executor, None) == 0
for call in (plain, lambda: plain(Other()), two_phases,
             lambda: openaclnn.elu(few, out=few.copy()), lambda: openaclnn.l1_loss_backward(1.0, few, few)):
    print({refusal(call) for _ in range(3)})
"""
    assert script(body) == ["{'none'}"] * 5
