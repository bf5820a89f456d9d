"""The programs under examples/c: compiled without a warning, and the first of them run with an empty environment."""

import math
import re

import pytest

from test_capi_tools import ROOT, compile_program, run_program

FOLDER = ROOT / "examples" / "c"
EXPECTED = {
    "elu_backward.c": """
        from the input: 0.551819 2.3364 4.5 8
        from the output: 0.551819 2.3364 4.5 8""",
    "l1_loss_backward.c": """
        none: -6 -6 6 6 0 6
        mean: -1 -1 1 1 0 1""",
    "smooth_l1_loss_backward.cpp": """
        beta 0.5: -1 -2 0 4 5
        beta 2: -1 -0.5 0 1 5
        beta 0: -1 -2 0 4 5""",
    "nll_loss2d_backward.cpp": "by class: -1 0 0 0 0 0 -2 0 0 0 0 0",
    "cross_entropy_loss_grad.cpp": """
        gradient: 0.0600204 0.163152 -0.223173 -0.444444 0.222222 0.222222
        0.0044617 -0.00449176 3.00627e-05""",
    "two_streams.cpp": """
        after the first stream: 10 20 30 40
        after the second stream: 100 200 300 400""",
    "strided_views.c": """
        memory: -7 1 -7 3 -7 5 -7 -2 -7 -4 -7 -6 -7
        strides: 6 2 of 2""",
    "repeatable_executor.c": """
        batch 0: -1 0.5 1
        batch 1: 0.25 -0.25 0
        batch 2: 1 -1 0.75""",
}
FLOAT_UNITS = 2.0**-22  # two units in the last place of 1: programs make their data in FLOAT
MISTAKES = [
    (100000, "aclrtMalloc: devPtr: "),
    (100000, "aclrtMalloc: size: "),
    (107000, "aclrtMemcpy: dst: "),
    (107000, "aclrtFree: devPtr: "),
    (161001, "aclnnEluBackward: inputScale: "),
    (161002, "aclnnEluBackward: selfOrResult: "),
    (161002, "aclnnEluBackward: gradOutput: expected a live tensor"),
    (561103, "aclnnEluBackward: executor: "),
    (161002, "aclDestroyTensor: tensor: "),
    (107017, "aclrtSynchronizeStream: stream: "),
]


def test_every_example_is_tested():
    programs = {path.name for path in FOLDER.iterdir() if path.suffix in (".c", ".cpp")}
    assert programs == {*EXPECTED, "ten_mistakes.c"}


@pytest.mark.parametrize("name", EXPECTED)
def test_example(name, tmp_path):
    program = compile_program(FOLDER / name, tmp_path / "program")
    # No fault is found: a finding would be printed, and the exit status another.
    words = run_program(program, OPENACLNN_SANITIZE="1,exitcode=9").split()
    if name == next(iter(EXPECTED)):
        assert run_program(program, kept=False).split() == words
    for got, expected in zip(words, EXPECTED[name].split(), strict=True):
        if re.fullmatch(r"-?[\d.e-]+", expected):  # printed to six digits: the last may be one off
            unit = 10.0 ** (math.floor(math.log10(abs(float(expected)) or 1)) - 5)
            assert abs(float(got) - float(expected)) <= unit + FLOAT_UNITS
        else:
            assert got == expected


def test_mistakes_are_told(tmp_path):
    output = run_program(compile_program(FOLDER / "ten_mistakes.c", tmp_path / "program"))
    lines = output.splitlines()
    assert lines.pop() == "still here"
    for number, (line, (code, text)) in enumerate(zip(lines, MISTAKES, strict=True), 1):
        assert line.startswith(f"{number:2}  {code}  {text}"), line
        assert f"[{code} ACL" in line
