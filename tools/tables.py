"""The tables of the documentation that are made: the operators in README.md, what is supported where in docs/products.md, which of PyTorch's operators
are replaced in docs/pytorch.md, and speed in docs/benchmarks.md.

`python -m tools.tables` writes the first three from the declarations and that of large problems from its file of cases in docs/, and a test keeps
them fresh.
"""

from __future__ import annotations

import re
from pathlib import Path

from openaclnn.core.products import PRODUCTS
from openaclnn.operators import grouped, registry, support_table
from tools.speed import LARGE, results_of, speed_table

__all__ = ["README", "SPEED", "SUPPORT", "written"]

_PROJECT = Path(__file__).parent.parent
README = _PROJECT / "README.md"
SUPPORT = _PROJECT / "docs" / "products.md"
SPEED = _PROJECT / "docs" / "benchmarks.md"
TORCH = _PROJECT / "docs" / "pytorch.md"
INTERFACE = 460
"""The `aclnn` functions of the whole interface, roughly."""


def written() -> dict[Path, str]:
    """The pages with their tables as they are to be now."""
    tables = {
        "operators": (README, operators_table()),
        "support": (SUPPORT, products_table()),
        "replaced operators": (TORCH, replaced_table()),
        "large problems": (SPEED, speed_table(results_of(LARGE))),
    }
    pages: dict[Path, str] = {}
    for name, (path, table) in tables.items():
        page = pages.get(path) or path.read_text(encoding="utf-8")
        begin, end = f"<!-- {name}: written by `make format` -->\n", f"<!-- end of {name} -->\n"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"{path.name} has lost the lines {begin.strip()} and {end.strip()}")
        pages[path] = f"{before}{begin}\n{table}\n\n{end}{after}"
    return pages


def operators_table() -> str:
    """How many there are, and their names: a line for each family. What is made of a name in the same line goes without saying."""
    lines = []
    for family, members in grouped().items():
        names = [each.name.removeprefix("aclnn") for each in members]
        shown = [name for name in names if _FORMS.sub("", name) not in {*names} - {name}]
        lines.append(f"| {family} | {', '.join(shown)} |")
    said = (
        f"{len(registry())} of some {INTERFACE} functions are here, by their names after `aclnn`; gradients (`...Backward`, `...Grad`) and in-place forms "
        "(`Inplace...`) of what is named are not listed:"
    )
    return "\n".join([said, "", "| family | operators |", "|---|---|", *lines])


def products_table() -> str:
    """What each product supports: a line for operators that agree in all products; the default profile has what any product has."""
    table = support_table()
    tags = [product.tag for product in PRODUCTS if not product.is_default]
    columns = [table.header.index(tag) for tag in tags]
    alike: dict[tuple[str, ...], list[str]] = {}
    for row in table.rows:
        cells = tuple(row[column] for column in columns)
        alike.setdefault(cells, []).append(row[0].removeprefix("aclnn"))
    lines = [f"| operators, after `aclnn` | {' | '.join(tags)} |", "|---" * (len(tags) + 1) + "|"]
    for cells, names in sorted(alike.items(), key=lambda each: -len(each[1])):
        lines.append(f"| {', '.join(names)} | {' | '.join(cells)} |")
    return "\n".join(lines)


_SPECIAL = "other values of NaN, infinities, -0 or what overflows than the documents of the interface have"  # fmt: skip
_READS = "all that they do is to read and write, and PyTorch's are as fast or faster"
UNSERVED = {
    "relu": "-0 is 0 by the interface's documents, and all that it does is to read and write",
    "softshrink, softshrink_backward, hardshrink_backward, hardtanh_backward": _SPECIAL,
    "hardswish, hardswish_backward": _SPECIAL,
    "softplus_backward, gelu_backward by tanh, glu_backward, soft_margin_loss, soft_margin_loss_backward": _SPECIAL,
    "binary_cross_entropy_backward": "other values of what is no probability, which nobody refuses there",
    "leaky_relu, leaky_relu_backward, threshold, threshold_backward, hardshrink": f"{_READS}; kernels would be Python, since schemas have a `Scalar`",
    "hardsigmoid, hardsigmoid_backward": "other last places, and bounds that differ by one: PyTorch adds 3 before it divides by 6",
    "gelu": "PyTorch's is 1.6 to 2.2 times as fast by erf on CPUs, and as fast on an H200",
    "gelu_backward by erf": "its forward is PyTorch's; ours is 1.4 times as fast on CPUs, on an H200 as fast in FLOAT, 1.25 in BFLOAT16",
    "log_sigmoid_forward, log_sigmoid_backward": "PyTorch's gradient reads an exponential that its forward keeps, which ours does not make",
    "glu": "its kernel is called by way of Python at sizes that were not seen before",
    "kl_div": "PyTorch makes it of its own operators, and the interface has gradients alone; `functional.kl_div` takes these",
    "multilabel_margin_loss_forward": "PyTorch refuses labels out of range, which the interface skips; `functional.multilabel_margin_loss` looks first",
}
"""Operators that stay PyTorch's under `enable` though ours compute the same, or nearly, and why."""


def replaced_table() -> str:
    """Which operators of PyTorch's `enable` replaces, where and by what, and which stay its own, and why."""
    from openaclnn.torch.override import COMPOSITES, OVERRIDES

    rows: dict[tuple[str, str], list[str]] = {}
    for name, override in OVERRIDES.items():
        kinds = override.kinds_of_devices
        how = "machine code" if override.signature.is_stable else "Python"
        how += "; a result that is not finite is PyTorch's" if override.signature.checked else ""
        rows.setdefault((" and ".join(kinds), how), []).append(name)  # fmt: skip
    made_of_others = [name for name in COMPOSITES if name != "linear_cross_entropy"]  # a function
    rows["CPU and CUDA", "Python, above PyTorch's derivatives"] = made_of_others
    lines = ["| operators of `torch.ops.aten` | replaced on | by a kernel in |", "|---|---|---|"]
    for (devices, how), names in rows.items():
        lines.append(f"| {', '.join(f'`{own}`' for own in names)} | {devices} | {how} |")
    lines += ["", "| what stays PyTorch's | why |", "|---|---|"]
    reasons: dict[str, list[str]] = {}
    for several, reason in UNSERVED.items():
        told = re.sub(r"[a-z_]{3,}(?=,|$| by)", lambda found: f"`{found[0]}`", several)
        reasons.setdefault(reason, []).append(told)
    lines += [f"| {', '.join(told)} | {reason} |" for reason, told in reasons.items()]
    return "\n".join(lines)


_FORMS = re.compile(r"^Inplace|(Target)?Backward(V2)?$|Grad$")


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
