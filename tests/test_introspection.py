"""Operators explain themselves: prototypes, parameters, checks, and what would happen to a call."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest

import openaclnn
from conftest import OPERATORS, run_python
from document_facts import FACTS
from openaclnn.core.declare import Operator
from openaclnn.core.interface import snake_case

names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)

documented = pytest.mark.parametrize("name", FACTS)


@documented
def test_prototypes_are_those_of_the_documents(name: str) -> None:
    first, second = openaclnn.find_operator(name).prototypes()
    assert first == (
        f"aclnnStatus {name}GetWorkspaceSize({FACTS[name].parameters}, "
        "uint64_t *workspaceSize, aclOpExecutor **executor)"
    )
    assert second == (
        f"aclnnStatus {name}(void *workspace, uint64_t workspaceSize, "
        "aclOpExecutor *executor, aclrtStream stream)"
    )


@documented
def test_headers_and_plain_signatures_of_the_documents(name: str) -> None:
    operator = openaclnn.find_operator(name)
    assert operator.header == FACTS[name].header
    assert str(inspect.signature(getattr(openaclnn, operator.python_name))) == FACTS[name].signature


@names
def test_plain_signatures(operator: Operator) -> None:
    function = getattr(openaclnn, operator.python_name)
    assert f"{function.__name__}{inspect.signature(function)}" == operator.signature()
    assert operator.summary in function.__doc__


@names
def test_describe_has_everything(operator: Operator) -> None:
    page = operator.describe()
    for parameter in operator.parameters:
        assert parameter.declaration in page
    for check in operator.checks:
        assert check.rule in page
        assert str(int(check.status)) in page
    assert operator.formula in page


def test_snake_case() -> None:
    assert snake_case("lseSquareScaleForZloss") == "lse_square_scale_for_zloss"


def test_find_operator_says_where_the_known_ones_are_named() -> None:
    with pytest.raises(KeyError, match=f"list` names the {len(OPERATORS)} operators"):
        openaclnn.find_operator("no_such_operator")


def test_explain_a_sound_call() -> None:
    x = np.ones((4, 5), np.float32)
    for way in (openaclnn.elu_backward, "elu_backward", "aclnnEluBackward"):
        explanation = openaclnn.explain(way, x, x.T.copy().T)
        assert explanation.ok
        assert len(explanation.checks) == len(explanation.operator.checks)
        assert explanation.engine in openaclnn.engines.dispatch.ENGINES
        assert "kernel elu_backward" in str(explanation)
        assert "engine" in str(explanation)


def test_explain_names_the_broken_rule() -> None:
    x = np.ones((4, 5), np.float32)
    explanation = openaclnn.explain(openaclnn.elu_backward, x, x[:, :3], alpha=-1.0, is_result=True)
    assert not explanation.ok
    assert explanation.error is not None
    assert explanation.checks[-1].check.row == "6"
    assert explanation.error.parameter == "selfOrResult"
    assert "FAIL   6" in str(explanation)
    assert "more checks not reached" in str(explanation)


def test_explain_bad_types_empty_tensors_and_products() -> None:
    x = np.ones((4, 5), np.float32)
    assert "list" in str(openaclnn.explain(openaclnn.elu_backward, [1.0], x))
    assert "nothing to compute" in str(openaclnn.explain(openaclnn.elu_backward, x[:0], x[:0]))
    assert openaclnn.explain(openaclnn.elu_backward, x, x, product="310b").error.status == 561103
    with pytest.raises(TypeError, match="needs"):
        openaclnn.explain(openaclnn.elu_backward, x)
    with pytest.raises(TypeError, match="alfa"):
        openaclnn.explain(openaclnn.elu_backward, x, x, alfa=1)


def test_errors_carry_their_parts_and_pickle() -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(openaclnn.AclnnError) as caught:
        openaclnn.elu_backward(x, np.ones(4, np.float32))
    error = caught.value
    assert (error.status, error.operator, error.parameter) == (
        161002,
        "aclnnEluBackward",
        "selfOrResult",
    )
    assert error.expected == "shape (3,), the shape of gradOutput"
    assert error.got == "shape (4,)"
    assert str(error) == (
        "aclnnEluBackward: selfOrResult: expected shape (3,), the shape of gradOutput, got shape (4,) "
        "[161002 ACLNN_ERR_PARAM_INVALID]"
    )
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)


def test_choosing_an_engine_by_name() -> None:
    x = np.ones(3, np.float32)
    with openaclnn.use_engine("numpy"):
        explanation = openaclnn.explain(openaclnn.elu_backward, x, x)
    assert explanation.engine == "numpy"
    assert explanation.reasons == ("numpy: serves it, asked for by name",)
    with pytest.raises(ValueError, match=r"known engines: .*numpy"), openaclnn.use_engine("abacus"):
        pass


@pytest.mark.parametrize(
    ("lacking", "why"),
    [
        ("import sys; sys.modules['llvmlite'] = None", "is not installed"),
        ("", "cannot be loaded (no such library)"),
    ],
)
def test_without_llvm_numpy_serves_and_explain_says_so(
    tmp_path: Path, lacking: str, why: str
) -> None:
    (tmp_path / "llvmlite").mkdir()
    (tmp_path / "llvmlite" / "__init__.py").touch()
    (tmp_path / "llvmlite" / "binding.py").write_text("raise OSError('no such library')")
    program = (
        f"{lacking}\n"
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import numpy as np, openaclnn\n"
        "x = np.float32([-1, 2])\n"
        "for _ in range(3): print(openaclnn.elu_backward(x, x).round(3).tolist())\n"
        "print(openaclnn.explain(openaclnn.elu_backward, x, x))\n"
        "from openaclnn import acl, aclnn\n"
        "for _ in range(3):\n"
        "    given = x, 1.0, 1.0, 1.0, False, x, np.zeros_like(x)\n"
        "    status, size, executor = aclnn.aclnnEluBackwardGetWorkspaceSize(*given)\n"
        "    assert status == 0, acl.aclGetRecentErrMsg()\n"
        "    assert aclnn.aclnnEluBackward(None, size, executor, None) == 0\n"
        "    assert acl.aclrtSynchronizeStream(None) == 0 and given[-1][1] == 2\n"
    )
    done = run_python(program, str(tmp_path))
    assert "[-0.368" in done.stdout
    assert "engine numpy" in done.stdout
    assert f"cpu: llvmlite, the compiler it writes code with, {why}" in done.stdout
