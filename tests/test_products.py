"""Product profiles reproduce their families' documented limits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import openaclnn
from conftest import OPERATORS, floats_of, run_python, table_of, told
from document_facts import BFLOAT16_FAMILIES, FACTS
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import BFLOAT16, DOUBLE, FLOAT, FLOAT16, INT32
from openaclnn.core.products import FAMILIES, PRODUCTS, find_product
from openaclnn.core.tensor import Tensor
from openaclnn.operators import grouped
from test_checks import broken, first_phase
from workloads.mistakes import t

names = pytest.mark.parametrize("operator", OPERATORS, ids=lambda op: op.python_name)


def missing_status(operator: Operator) -> int:
    """The status that its table gives where the product lacks it."""
    row = next(check for check in operator.checks if check.rule == "the product has the operator")
    return int(row.status)


def families_with_bfloat16(operator: Operator) -> set[str]:
    """Families on which BFLOAT16 is an argument of the operator, if it is one at all."""
    return BFLOAT16_FAMILIES if BFLOAT16 in floats_of(operator) else set()


@pytest.mark.parametrize("name", FACTS)
def test_declarations_say_what_the_documents_say(name: str) -> None:
    operator = openaclnn.find_operator(name)
    assert operator.families == FACTS[name].families
    assert missing_status(operator) == FACTS[name].missing


@names
def test_support_and_its_codes(operator: Operator) -> None:
    sound, _ = table_of(operator)
    for product in [p.tag for p in PRODUCTS]:
        supported = product == "default" or product in operator.families
        with told(product), openaclnn.use_product(product):
            status, _, executor = first_phase(operator, sound())
            assert status == (0 if supported else missing_status(operator))
            assert (executor is not None) == supported


@names
def test_argument_checks_come_before_the_missing_kernel(operator: Operator) -> None:
    sound, mistakes = table_of(operator)
    lacking = next((p.tag for p in FAMILIES if p.tag not in operator.families), None)
    if lacking is None:
        return  # every family has it
    rows = [check.row for check in operator.checks]
    missing = next(c.row for c in operator.checks if c.rule == "the product has the operator")
    for mistake in mistakes:
        refusal = broken(operator, sound() | mistake.change, mistake.pointers, lacking)
        assert refusal is not None
        if rows.index(mistake.row) > rows.index(missing):
            assert (
                refusal[1] == 561003
            )  # the generated interface looks for the kernel before it plans
        elif mistake.change.get("lseForZlossOptional", 0) is None:
            assert refusal[1] == 561003  # families accept the z-loss arguments without effect
        else:
            assert refusal[:2] == (mistake.row, mistake.status)


@names
def test_bfloat16_only_where_the_family_has_it(operator: Operator) -> None:
    sound, _ = table_of(operator)
    replaced = BFLOAT16 if families_with_bfloat16(operator) else FLOAT
    arguments = {
        name: Tensor(value.shape, BFLOAT16, base=4096)
        if isinstance(value, Tensor) and replaced in operator[name].dtypes
        else value
        for name, value in sound().items()
    }
    for product in [p.tag for p in FAMILIES]:
        with told(product), openaclnn.use_product(product):
            status, _, _ = first_phase(operator, arguments)
            if product not in families_with_bfloat16(operator):
                assert status == 161002
            else:
                assert status == (0 if product in operator.families else missing_status(operator))


@pytest.mark.parametrize(
    ("product", "status"), [("950", 0), ("a3", 161002), ("910b", 161002), ("default", 0)]
)
def test_cross_entropy_int32_target(product: str, status: int) -> None:
    operator = openaclnn.find_operator("cross_entropy_loss_grad")
    sound, _ = table_of(operator)
    with openaclnn.use_product(product):
        assert (
            first_phase(operator, sound() | {"target": Tensor((4,), INT32, base=64)})[0] == status
        )


@pytest.mark.parametrize(
    ("product", "status"), [("950", 0), ("a3", 561002), ("a2", 561002), ("default", 0)]
)
def test_cross_entropy_smoothing(product: str, status: int) -> None:
    operator = openaclnn.find_operator("cross_entropy_loss_grad")
    sound, _ = table_of(operator)
    with openaclnn.use_product(product):
        assert first_phase(operator, sound() | {"labelSmoothing": 0.1})[0] == status


def test_zloss_has_no_effect_on_a_family() -> None:
    arguments = {
        "grad_loss": np.float32(1.0),
        "log_prob": np.log(np.full((2, 4), 0.25, np.float32)),
        "target": np.array([1, 2]),
        "lse_for_zloss": np.array([2.0, 3.0], np.float32),
        "lse_square_scale_for_zloss": 0.5,
    }
    with_zloss = openaclnn.cross_entropy_loss_grad(**arguments)
    without = openaclnn.cross_entropy_loss_grad(**(arguments | {"lse_square_scale_for_zloss": 0.0}))
    assert not np.array_equal(with_zloss, without)
    for product in ("950", "a2", "a3"):
        np.testing.assert_array_equal(
            openaclnn.cross_entropy_loss_grad(**arguments, product=product), without
        )


@pytest.mark.parametrize("name", ["grad_zloss", "lse_for_zloss"])
def test_z_loss_tensors_of_any_shape_where_none_is_computed(name: str) -> None:
    """Without a scale they have no effect, nor on a family: passing them does not fail, and then they are of any size."""
    log_prob = np.log(np.full((4, 4), 0.25, np.float32))
    for reduction, shape in itertools.product(("mean", "none"), [(7,), (2, 3), (), (0,)]):
        for rows in (4, 3, 4, 2):
            gradient = np.ones(rows if reduction == "none" else (), np.float32)
            arguments = {
                "grad_loss": gradient, "log_prob": log_prob[:rows], "target": np.arange(rows), "reduction": reduction,
            }  # fmt: skip
            expected = openaclnn.cross_entropy_loss_grad(**arguments)
            odd = {name: np.ones(shape, np.float32)}
            np.testing.assert_array_equal(
                openaclnn.cross_entropy_loss_grad(**arguments, **odd), expected
            )
            scale = {"lse_square_scale_for_zloss": 0.5}
            result = openaclnn.cross_entropy_loss_grad(**arguments, **odd, **scale, product="950")
            np.testing.assert_array_equal(result, expected)
            sound = {"lse_for_zloss": np.ones(rows, np.float32)} | odd
            if shape == () and reduction == "mean" and name == "grad_zloss":
                continue
            with pytest.raises(openaclnn.AclnnError, match="561002"):
                openaclnn.cross_entropy_loss_grad(**arguments, **sound, **scale)


def test_z_loss_tensors_of_any_shape_in_both_phases() -> None:
    operator = openaclnn.find_operator("cross_entropy_loss_grad")
    sound, _ = table_of(operator)
    odd = sound() | {"gradZlossOptional": t((2, 3)), "lseForZlossOptional": t((7,))}
    assert first_phase(operator, odd)[0] == 561002
    assert first_phase(operator, odd | {"lseSquareScaleForZloss": 0.0})[0] == 0
    with openaclnn.use_product("950"):
        assert first_phase(operator, odd)[0] == 0


def test_empty_tensors_succeed_before_the_missing_kernel_shows() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert openaclnn.elu_backward(empty, empty, product="310b").shape == (0, 3)
    full = np.zeros((1, 3), np.float32)
    with pytest.raises(openaclnn.AclnnError, match="310b") as caught:
        openaclnn.elu_backward(full, full, product="310b")
    assert caught.value.status == 561103


def test_choosing_a_product() -> None:
    x = np.zeros(3, np.float16).astype(BFLOAT16.numpy)
    assert openaclnn.elu_backward(x, x).dtype == x.dtype
    with pytest.raises(openaclnn.AclnnError, match="310p"), openaclnn.use_product("Ascend310P"):
        openaclnn.elu_backward(x, x)
    with pytest.raises(openaclnn.AclnnError):
        openaclnn.elu_backward(x, x, product="910")
    with pytest.raises(ValueError, match="one of default, 950"):
        openaclnn.elu_backward(x, x, product="911")
    assert find_product("910B").tag == "a2"


def test_chips_are_products() -> None:
    """What `npu-smi` prints is what its reader types."""
    for name, tag in {
        "910B3": "a2", "Ascend910B2C": "a2", "ascend910b4-1": "a2", "Ascend910_9392": "a3", "910C": "a3", "310P3": "310p",
        "Ascend310B4": "310b", "910A": "910",
    }.items():  # fmt: skip
        assert find_product(name).tag == tag, name
    for name in ("910d", "9103", "910b3x9", "ascend", "910b-", "b3"):
        with pytest.raises(ValueError, match="known products: default, 950, a3"):
            find_product(name)


def test_environment_variable() -> None:
    program = (
        "import numpy, ml_dtypes, openaclnn\n"
        "x = numpy.zeros(3, ml_dtypes.bfloat16)\n"
        "try: openaclnn.elu_backward(x, x)\n"
        "except openaclnn.AclnnError as error: print(error.status)\n"
        "from openaclnn import aclnn\n"
        "print(aclnn.aclnnEluBackwardGetWorkspaceSize(x, 1.0, 1.0, 1.0, False, x, x)[0])\n"
    )
    done = run_python(program, OPENACLNN_PRODUCT="910")
    assert done.stdout.split() == ["161002", "161002"]


def test_support_table_lists_what_is_declared() -> None:
    table = openaclnn.support_table()
    assert table.header == ("operator", *(p.tag for p in PRODUCTS))
    operators = [operator for members in grouped().values() for operator in members]
    assert [row[0] for row in table.rows] == [operator.name for operator in operators]
    assert sorted(map(repr, operators)) == sorted(map(repr, OPERATORS))
    for operator, row in zip(operators, table.rows, strict=True):
        for tag, cell in zip(table.header[2:], row[2:], strict=True):
            assert (cell != "-") == (tag in operator.families)
            assert ("BF16" in cell) == (tag in operator.families & families_with_bfloat16(operator))
        known = (("F32", FLOAT), ("F16", FLOAT16), ("BF16", BFLOAT16))
        shown = [short for short, dtype in known if dtype in floats_of(operator)]
        shown += ["F64"] if DOUBLE in operator.tensors[0].dtypes else []
        assert row[1] == " ".join(shown)
    assert "aclnnEluBackward" in str(table)
    assert table.markdown().startswith("| operator")


@pytest.mark.parametrize("name", ["swi_glu", "swi_glu_grad"])
def test_the_inference_series_takes_halves_of_whole_blocks(name: str) -> None:
    operator = openaclnn.find_operator(name)
    for product, expected in (("310p", 561002), ("a2", 0), ("default", 0)):
        for dtype, size, status in ((FLOAT, 16, 0), (FLOAT, 24, expected), (FLOAT16, 16, expected)):
            arguments = {
                p.name: t(operator.shape_of(p.name, (3, size), {}), dtype) if p.is_tensor else -1
                for p in operator.parameters
            }
            with told(product, dtype, size), openaclnn.use_product(product):
                assert first_phase(operator, arguments)[0] == status


@pytest.mark.parametrize("name", [op.python_name for op in OPERATORS if "GeGlu" in op.name])
def test_the_inference_series_has_gelu_by_the_hyperbolic_tangent_alone(name: str) -> None:
    operator = openaclnn.find_operator(name)
    sound, _ = table_of(operator)
    for product, status in (("310p", 161002), ("a2", 0), ("default", 0)):
        with told(product), openaclnn.use_product(product):
            assert first_phase(operator, sound() | {"approximate": 0})[0] == status
            assert first_phase(operator, sound() | {"approximate": 1})[0] == 0
