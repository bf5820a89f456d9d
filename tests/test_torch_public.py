"""PyTorch is entered and read by interfaces that it promises: nothing of its memory, no symbol of C++, no list of versions; and no private
name is needed to import our face, or for a loss and its gradient to be right."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import openaclnn
from conftest import in_turn, run_python
from openaclnn.cli import doctor
from openaclnn.torch import native as dispatcher

SOURCE = Path(openaclnn.__file__).parent

READING = {
    "core/interop.py": "what DLPack hands over, and memory that array interfaces describe",
    "core/products.py": "how often an object of ours is referred to",
    "core/tensor.py": "NumPy's arrays",
    "engines/machine/process_exit.py": "words of our own libraries",
    "engines/machine/objects.py": "NumPy's arrays",
    "pyacl.py": "memory that the caller names",
    "repeat/code/read_copy_update.py": "words of ours",
    "repeat/readers.py": "the table of DLPack's exchange interface",
}
"""Files that read memory by address, and what."""


@functools.cache
def trees() -> dict[str, ast.Module]:
    """The source files."""
    files = sorted(SOURCE.rglob("*.py"))
    return {str(path.relative_to(SOURCE)): ast.parse(path.read_text()) for path in files}


@functools.cache
def words_of_files() -> dict[str, frozenset[str]]:
    return {name: frozenset(words(tree)) for name, tree in trees().items()}


def files_with(word: str) -> set[str]:
    return {name for name, known in words_of_files().items() if word in known}


def words(tree: ast.AST) -> Iterator[str]:
    """Names, attributes and texts, but for comments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            yield str(node.value)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (getattr(node, "module", None) or "", *(alias.name for alias in node.names))


def test_memory_is_read_by_address_where_it_is_known_whose_it_is() -> None:
    assert files_with("from_address") == READING.keys()


def places_inside_objects(tree: ast.AST) -> list[str]:
    """Sums with the address of an object, which are addresses inside it."""
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, (ast.Add, ast.Sub))
        for side in (node.left, node.right)
        if isinstance(side, ast.Call) and ast.unparse(side.func) == "id"
    ]  # fmt: skip


def test_no_address_inside_an_object_is_computed() -> None:
    assert places_inside_objects(ast.parse("id(tensor) + 16")) == ["id(tensor) + 16"]
    files = {name for name, tree in trees().items() if places_inside_objects(tree)}
    assert files == {"core/tensor.py"}  # where NumPy's arrays have their data


@pytest.mark.parametrize("word", ["_cdata", "__basicsize__"])
def test_nobody_looks_for_pytorchs_objects(word: str) -> None:
    allowed = {"core/tensor.py", "engines/machine/objects.py"} if word == "__basicsize__" else set()
    assert files_with(word) <= allowed


def test_no_symbol_of_cpp_is_asked_for() -> None:
    mangled = re.compile(r"\b_Z(N|K|S|T|\d)")
    assert mangled.match("_ZN2at6native6is_negERKNS_6TensorE")
    files = words_of_files().items()
    assert not [(name, word) for name, known in files for word in known if mangled.search(word)]


def test_no_version_is_listed() -> None:
    """What PyTorch has is seen by asking for it."""
    files = {name for name in files_with("__version__") if name.startswith(("torch/", "repeat/"))}
    assert files == {"torch/refusals.py"}  # which names it in an error


class Recording:
    """A library, and the names that were asked of it."""

    def __init__(self, library: Any) -> None:
        self.library, self.names = library, set[str]()

    def __getattr__(self, name: str) -> Any:
        symbol = getattr(self.library, name)  # what a release lacks is not asked for
        self.names.add(name)
        return symbol


def test_every_function_of_the_interface_is_declared_in_its_headers() -> None:
    known = dispatcher.stable_interface()
    assert known is not None
    recording = Recording(known.library)
    again = dispatcher.StableInterface(recording)
    again.device_kind("CPU")
    again.dtype_number("float32")
    folder = Path(torch.__path__[0]) / "include/torch/csrc"
    headers = "inductor/aoti_torch/c/shim.h", "stable/c/shim.h"
    text = "".join((folder / name).read_text() for name in headers)
    declared = {*re.findall(r"\b(\w+)\(", text)}
    assert recording.names <= declared
    assert "aoti_torch_get_current_cuda_stream" in declared


@pytest.mark.parametrize(
    ("version", "slow"), [("2.9.1+cpu", True), ("2.10.0", False), ("2.13.0+cu130", False), ("3.0", False)]
)  # fmt: skip
def test_doctor_tells_of_a_pytorch_without_the_interfaces(version: str, slow: bool) -> None:
    assert ("slow path" in doctor._told_of("torch", version)) is slow
    assert doctor._told_of("numpy", version) == version


# Private names.

NAMES = (
    "torch.autograd.function:_SingleLevelFunction",
    "torch._functorch.utils:enable_single_level_autograd_function",
    "torch._C:DispatchKeySet",
    "torch._C:DispatchKey",
    "torch._C:_dispatch_key_parse",
    "torch._C:_dispatch_tls_local_include_set",
    "torch._C:_dispatch_tls_is_dispatch_key_included",
    "torch._C:_len_torch_dispatch_stack",
    "torch._C:_are_functorch_transforms_active",
    "torch._C:_is_any_autocast_enabled",
    "torch._C:_is_tracing",
    "torch._C:_any_requires_grad",
    "torch._C:_AutoDispatchBelowAutograd",
    "torch._C:_ExcludeDispatchKeyGuard",
    "torch._C:_cuda_getCurrentRawStream",
    "torch._C._dynamo:eval_frame",
    "torch._C._dynamo:guards",
    "torch._C:DisableTorchFunction",
    "torch.autograd.forward_ad:_current_level",
    "torch.library:Library._destroy",
    "torch.distributed.tensor._op_schema:RuntimeSchemaInfo",
)
"""What the package asks PyTorch for."""

EVERYWHERE = {
    "torch.autograd.function:_SingleLevelFunction",
    "torch._C:DispatchKeySet",
    "torch._C:_AutoDispatchBelowAutograd",
}
"""Those that each loss and each replaced operator asks for, taken away one by one, in turns; the others, all at once, to save time."""

# PyTorch itself needs these names: they are taken away from what our modules see alone, in a process for each group of names.
WITHOUT = '''
import importlib, os, sys, types, warnings
import torch, torch.nn.functional as theirs, torch.distributed.tensor.experimental
import torch._functorch.utils, llvmlite.binding  # once for all of them

class Without(types.ModuleType):
    """All that a module or a class has, but for some names, or with other things under them."""
    def __init__(self, whole):
        super().__init__(getattr(whole, "__name__", "?"))
        self.__dict__.update(whole_=whole, gone_={})
    def __getattr__(self, name):
        asking = sys._getframe(1).f_globals["__name__"]
        if name not in self.gone_ or not asking.startswith("openaclnn"):
            return getattr(self.whole_, name)
        if self.gone_[name] is None:
            raise AttributeError(name)
        return self.gone_[name]
    def __instancecheck__(self, own):
        return isinstance(own, self.whole_)

def without(path, name):
    """Our modules import PyTorch without what `path` has as `name`."""
    below = None
    while path:
        module = sys.modules[path]
        if not isinstance(module, Without):
            module = sys.modules[path] = Without(module)
        module.gone_[name] = below
        below = module
        path, _, name = path.rpartition(".")

def both(function, x, *rest, **options):
    own = x.clone().requires_grad_()
    value = function(own, *rest, **options)
    return value.detach(), *torch.autograd.grad(value.sum(), own)

def look(*names):
    for path, name in (own.split(":") for own in names):
        if name == "Library._destroy":
            del torch.library.Library._destroy
        else:
            without(path, name)
    import openaclnn.torch as fast
    import openaclnn.torch.parallel
    same = torch.testing.assert_close
    x, target = torch.tensor([[1.0, 2.0, -3.0], [0.5, 0.0, 1.0]]), torch.tensor([2, 0])
    other, last = x.flip(0), x.t().reshape(1, 3, 2, 1).contiguous(memory_format=torch.channels_last)
    calls = (
        ("elu", (1.3,), {}), ("l1_loss", (other,), {}), ("smooth_l1_loss", (other,), {"beta": 0.7, "reduction": "none"}),
        ("nll_loss", (target,), {"size_average": False}), ("cross_entropy", (target,), {"label_smoothing": 0.1}),
    )
    known = [both(getattr(theirs, name), x, *rest, **options) for name, rest, options in calls]
    for faces in (fast.functional, theirs):
        with fast.use():
            for _ in range(3):
                for (name, rest, options), result in zip(calls, known, strict=True):
                    same(both(getattr(faces, name), x, *rest, **options), result)
    same(fast.functional.elu(last), theirs.elu(last))
    same(torch.ops.openaclnn.elu(x), theirs.elu(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same(fast.functional.cross_entropy(x, target), theirs.cross_entropy(x, target))
    ours, its = (
        torch.func.grad(lambda own: m.smooth_l1_loss(own, other))(x) for m in (fast.functional, theirs)
    )
    same(ours, its)

warnings.simplefilter("ignore")
for asked in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            look(*asked.split())
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(asked, "right" if os.waitpid(child, 0)[1] == 0 else "wrong", flush=True)
'''


def test_names_that_pytorch_no_longer_has() -> None:
    asked = [
        *in_turn(sorted(EVERYWHERE), "names"),
        " ".join(name for name in NAMES if name not in EVERYWHERE),
    ]
    done = run_python(WITHOUT, *asked, timeout=600)
    assert done.stdout.splitlines() == [f"{name} right" for name in asked], done.stderr


OF_OBJECTS = ("_schema", "_base", "_version", "_backward_hooks", "_op", "_overload_names")


def private(tree: ast.AST) -> list[str]:
    """What is private among the names of PyTorch's that a module asks for."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.partition(".")[0] == "torch"]
        elif isinstance(node, ast.Attribute):
            path = ast.unparse(node)
            asked = (
                path.partition(".")[0] in ("torch", "torch_c") or "sys.modules['torch']." in path
            )
            # What PyTorch's objects have under private names, whatever ours calls the object.
            names += [path] if asked or node.attr in OF_OBJECTS else []
        elif isinstance(node, ast.Constant) and str(node.value).startswith("torch._"):
            names.append(str(node.value))
    names = [name for name in names if ".ops.aten." not in name]  # which are operators' names
    words = [(name, part) for name in names for part in name.split(".")]
    return [name for name, part in words if part.startswith("_") and not part.endswith("__")]


def test_private_names_are_in_one_file() -> None:
    about = {name for name, known in words_of_files().items() if any("torch" in word or word in OF_OBJECTS for word in known)}  # fmt: skip
    private_names = {name: private(trees()[name]) for name in about}
    assert private_names.pop("torch/private.py")
    private_names.pop("core/torch_names.py")
    assert {name: names for name, names in private_names.items() if names} == {}
    known = "import torch._dynamo\nfrom torch.nn import _reduction\ntorch._C.f()\ntorch.__path__"
    assert private(ast.parse(known)) == ["torch._dynamo", "torch.nn._reduction", "torch._C.f", "torch._C"]  # fmt: skip
