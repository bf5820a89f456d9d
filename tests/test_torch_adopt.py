"""`apply_to`: modules that become ours and PyTorch's again, and language models whose logits are never computed in training.

The classes here have the structure of the models of transformers, which test_recipes.py takes where it is installed.
"""

from __future__ import annotations

import copy
import io
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode

import openaclnn.torch as fast
from openaclnn.torch import functional, nn
from openaclnn.torch.adopt import NO_GAIN, NO_GAIN_ON_GPU, HeadLinear, Logits, replacements

WORDS, FEATURES = 203, 16
IDS = torch.randint(WORDS, (3, 12), generator=torch.Generator().manual_seed(1))
LABELS = torch.where(torch.arange(12) < 2, -100, IDS)


class Body(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(WORDS, FEATURES)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))

    def forward(self, ids: Tensor) -> Tensor:
        hidden: Tensor = self.embed_tokens(ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act_fn = torch.nn.Linear(FEATURES, FEATURES), torch.nn.ELU()

    def forward(self, hidden: Tensor) -> Any:
        return hidden + self.act_fn(self.up(hidden))


def causal_loss(
    logits: Any,
    labels: Tensor,
    vocab_size: int,
    num_items_in_batch: Any = None,
    ignore_index: int = -100,
    shift_labels: Any = None,
    **_: Any,
) -> Tensor:
    """As `ForCausalLMLoss` of transformers."""
    logits = logits.float()
    if shift_labels is None:
        shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:].contiguous()
    logits = logits.view(-1, vocab_size)
    shift_labels = shift_labels.view(-1).to(logits.device)
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss = F.cross_entropy(logits, shift_labels, ignore_index=ignore_index, reduction=reduction)
    return loss if num_items_in_batch is None else loss / num_items_in_batch


@dataclass
class Output:
    loss: Any
    logits: Any


class CausalLM(torch.nn.Module):
    """Llama, Qwen, Mistral: a body, `lm_head`, `loss_function`."""

    def __init__(self, tied: bool = False, bias: bool = False, cap: float | None = None) -> None:
        super().__init__()
        self.model = Body()
        self.lm_head = torch.nn.Linear(FEATURES, WORDS, bias)
        if tied:
            self.lm_head.weight = self.model.embed_tokens.weight
        self.loss_function = causal_loss
        self.config = SimpleNamespace(vocab_size=WORDS, final_logit_softcapping=cap)

    def capped(self, logits: Any) -> Any:
        return logits

    def forward(
        self, input_ids: Tensor, labels: Tensor | None = None, logits_to_keep: int = 0, **named: Any
    ) -> Any:
        hidden = self.model(input_ids)
        logits = self.capped(self.lm_head(hidden[:, slice(-logits_to_keep, None), :] if logits_to_keep else hidden))  # fmt: skip
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **named)  # fmt: skip
        return Output(loss, logits)


class Capped(CausalLM):
    """Gemma: the soft cap between head and loss."""

    def capped(self, logits: Any) -> Any:
        logits = logits / self.config.final_logit_softcapping
        return torch.tanh(logits) * self.config.final_logit_softcapping


class Scaled(CausalLM):
    """Granite, Cohere: a factor between head and loss."""

    def capped(self, logits: Any) -> Any:
        return 0.3 * logits / 2.0


class ShiftingByHand(CausalLM):
    """GPT-2 as it was, and many models of people's own."""

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Any:  # type: ignore[override]
        logits = self.lm_head(self.model(input_ids))
        loss = None
        if labels is not None:
            shifted, labels = logits[..., :-1, :].contiguous(), labels[..., 1:].contiguous()
            loss = torch.nn.CrossEntropyLoss()(shifted.view(-1, shifted.size(-1)), labels.view(-1))
        return Output(loss, logits)


class Masking(ShiftingByHand):
    """Models of pictures and words: padding is taken out of the rows."""

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Any:  # type: ignore[override]
        logits = self.lm_head(self.model(input_ids))
        loss = None
        if labels is not None:
            mask = labels[..., 1:] != -100
            rows = logits.float()[..., :-1, :][mask].contiguous()
            loss = nn.CrossEntropyLoss(zloss_scale=1e-3)(rows, labels[..., 1:][mask].contiguous())
        return Output(loss, logits)


MODELS: dict[str, Callable[[], CausalLM]] = {
    "llama": CausalLM,
    "tied": lambda: CausalLM(tied=True),
    "bias": lambda: CausalLM(bias=True),
    "gemma": lambda: Capped(tied=True, cap=4.0),
    "granite": lambda: Scaled(bias=True),
    "by hand": ShiftingByHand,
    "masking": Masking,
}


def model_of(name: str, dtype: torch.dtype = torch.float32) -> CausalLM:
    torch.manual_seed(0)
    return MODELS[name]().to(dtype)


def step(model: CausalLM, **named: Any) -> tuple[Tensor, list[Tensor], Any]:
    model.zero_grad()
    output = model(IDS, labels=LABELS, **named)
    output.loss.backward()
    return output.loss.detach(), [p.grad for p in model.parameters() if p.grad is not None], output.logits  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_language_model_has_the_loss_and_the_gradients_it_had(name: str) -> None:
    before, after = model_of(name), model_of(name)
    fast.apply_to(after, exclude="ELU")
    expected, gradients, logits = step(before)
    loss, ours, deferred = step(after)
    assert isinstance(deferred, Logits)
    assert deferred.tensor is None
    torch.testing.assert_close(loss, expected)
    for mine, theirs in zip(ours, gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=1e-7)
    torch.testing.assert_close(deferred.materialize(), logits)
    assert deferred.dtype is logits.dtype
    assert deferred.shape == logits.shape


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["tied", "gemma"])
def test_gradients_of_16_bits_are_no_further_from_float64(name: str, dtype: torch.dtype) -> None:
    exact, before, after = (
        model_of(name, dtype).double(),
        model_of(name, dtype),
        model_of(name, dtype),
    )
    fast.apply_to(after)
    gradients, results = step(exact)[1], [step(before), step(after)]
    assert {result[0].dtype for result in results} == {torch.float32}
    theirs, ours = (
        sum((one.double() - other).square().sum() for one, other in zip(result[1], gradients, strict=True))
        for result in results
    )  # fmt: skip
    assert ours <= 1.2 * theirs


def test_accumulated_batches_have_one_denominator() -> None:
    before, after = model_of("tied"), model_of("tied")
    fast.apply_to(after)
    for number in (7, torch.tensor(11)):
        named: dict[str, Any] = {"num_items_in_batch": number, "unknown": 1}
        torch.testing.assert_close(step(after, **named)[:2], step(before, **named)[:2])
    shifted = F.pad(LABELS, (0, 1), value=-100)[:, 1:].contiguous()
    torch.testing.assert_close(step(after, shift_labels=shifted)[0], step(before)[0])


def test_autocast_is_that_of_the_layer() -> None:
    before, after = model_of("llama"), model_of("llama")
    fast.apply_to(after)
    results = []
    for model in (before, after):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(IDS, labels=LABELS)
        assert output.logits.dtype is torch.bfloat16
        results.append((output.loss, torch.autograd.grad(output.loss, model.lm_head.weight)[0]))
    (expected, theirs), (loss, ours) = results
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=0)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-2 * float(theirs.abs().max()))


class Sizes(TorchDispatchMode):
    """How many elements the largest tensor has that an operation makes."""

    largest = 0

    def __torch_dispatch__(self, function: Any, _: Any, arguments: Any = (), named: Any = None) -> Any:  # fmt: skip
        result = function(*arguments, **(named or {}))
        for each in torch.utils._pytree.tree_leaves(result):
            if isinstance(each, Tensor):
                self.largest = max(self.largest, each.numel())
        return result


@pytest.mark.parametrize("name", ["tied", "gemma", "by hand"])
def test_a_training_step_has_no_logits(name: str) -> None:
    rows, model = IDS.numel(), model_of(name)
    with Sizes() as before:
        step(model)
    fast.apply_to(model)
    with Sizes() as after:
        step(model)
    assert before.largest >= (rows - 3) * WORDS
    assert after.largest == WORDS * FEATURES < (rows - 3) * WORDS  # the weights' gradient
    for _ in range(2):  # inside the operators, too, whose kernels are compiled by the first call
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:  # fmt: skip
            step(model)
    assert max(event.self_cpu_memory_usage for event in profile.events()) < (rows - 3) * WORDS * 4


def test_evaluation_and_training_without_labels_are_unchanged() -> None:
    before, after = model_of("gemma"), model_of("gemma")
    fast.apply_to(after, exclude="ELU")
    for training, named in ((True, {}), (False, {}), (False, {"labels": LABELS})):
        one, other = (model.train(training)(IDS, **named) for model in (before, after))
        assert type(other.logits) is Tensor
        assert torch.equal(one.logits, other.logits)
    with pytest.raises(TypeError):
        after.train()(IDS, labels=LABELS, ignore_index="none")
    assert type(after(IDS).logits) is Tensor  # after an exception, too


def test_modules_become_ours_and_pytorchs_again() -> None:
    model = model_of("tied")
    identities, names = [*map(id, model.modules())], model.state_dict().keys()
    types, before = [*map(type, model.modules())], repr(model)
    called: list[str] = []
    model.model.layers[1].act_fn.register_forward_hook(lambda *_: called.append("hook"))
    applied = fast.apply_to(model)
    assert repr(applied) == (
        "module                 was     is\n"
        "model.layers.*.act_fn  ELU     openaclnn.ELU                                                    x 3\n"
        "lm_head                Linear  openaclnn.HeadLinear: cross entropy of 203 words without logits"
    )
    assert [*map(id, model.modules())] == identities
    assert model.state_dict().keys() == names
    assert "(act_fn): openaclnn.ELU(alpha=1.0)" in repr(model)
    assert f"openaclnn.HeadLinear(in_features={FEATURES}, out_features={WORDS}" in repr(model)
    again = fast.apply_to(model)
    assert repr(again) == "nothing to replace"
    again.revert()
    step(model)
    assert called == ["hook"]
    assert isinstance(model.lm_head, HeadLinear)
    for _ in range(2):
        applied.revert()
        assert [*map(type, model.modules())] == types
        assert repr(model) == before
    assert type(step(model)[2]) is Tensor
    assert "deferred" not in vars(model.lm_head)
    with fast.apply_to(model, only=["ELU"]):
        assert type(model.model.layers[0].act_fn) is nn.ELU
        assert type(model.lm_head) is torch.nn.Linear
    assert repr(model) == before


def test_what_is_derived_shared_or_the_model_itself() -> None:
    class Mine(torch.nn.ELU):
        pass

    shared = torch.nn.ELU(0.5)
    model = torch.nn.Sequential(shared, Mine(), torch.nn.Sequential(shared)).double().eval()
    fast.apply_to(model)
    assert model[0] is model[2][0] is shared
    assert type(shared) is nn.ELU
    assert shared.alpha == 0.5
    assert not shared.training
    assert type(model[1]) is Mine
    criterion = torch.nn.CrossEntropyLoss(torch.ones(3), label_smoothing=0.1)
    assert "(the model)" in repr(fast.apply_to(criterion))
    assert repr(criterion) == "openaclnn.CrossEntropyLoss()"
    assert [*criterion.state_dict()] == ["weight"]


def test_what_gains_nothing_is_replaced_by_its_name_alone() -> None:
    assert {each.__name__ for each in replacements()} > NO_GAIN | NO_GAIN_ON_GPU
    model = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Mish())
    fast.apply_to(model)
    assert [*map(type, model)] == [torch.nn.SiLU, nn.Mish]
    fast.apply_to(model, only="SiLU")
    assert [*map(type, model)] == [nn.SiLU, nn.Mish]
    model = torch.nn.Sequential(torch.nn.Mish(), torch.nn.L1Loss())
    model.parameters = lambda: iter([SimpleNamespace(is_cuda=True)])
    fast.apply_to(model)
    assert [*map(type, model)] == [torch.nn.Mish, nn.L1Loss]


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "KLDivLoss": (None, None, "batchmean"), "LinearCrossEntropyLoss": (FEATURES, 5), "LogSoftmax": (1,), "Softmax": (1,),
    "Threshold": (0.1, 2.0),
}  # fmt: skip
"""What constructors cannot do without."""

INDICES = torch.tensor([0, 3, 2, -100, 1, 4])
TARGETS = {
    "NLLLoss": INDICES, "CrossEntropyLoss": INDICES, "LinearCrossEntropyLoss": INDICES, "NLLLoss2d": torch.arange(16).reshape(1, 4, 4) % 6,
    "MultiLabelMarginLoss": torch.arange(6 * FEATURES).reshape(6, FEATURES) % 7 - 1,
}  # fmt: skip


@pytest.mark.parametrize("theirs", replacements(), ids=lambda each: each.__name__)
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of names that PyTorch gives up
def test_every_module_of_ours_reads_the_attributes_of_pytorchs(theirs: Any) -> None:
    """Values and gradients, of a module that was PyTorch's when it was made."""
    name = theirs.__name__
    module = theirs(*ARGUMENTS.get(name, ()))
    input = torch.randn(6, FEATURES).log_softmax(1)
    input = input.exp() if name == "BCELoss" else input.reshape(1, 6, 4, 4) if name == "NLLLoss2d" else input  # fmt: skip
    inputs = [input.requires_grad_()]
    if name.endswith("Loss") or name in TARGETS:
        inputs.append(TARGETS.get(name, torch.rand(6, FEATURES)))

    def both() -> Any:
        result = module(*inputs)
        return result, torch.autograd.grad(result.sum(), inputs[0])[0]

    before = both()
    fast.apply_to(module, only=name)
    assert repr(module).startswith(f"openaclnn.{name}(")
    torch.testing.assert_close(both(), before)


def test_what_is_no_plain_layer_is_left() -> None:
    """With the reason, and without a word once hooks come later."""
    model = model_of("llama")
    model.lm_head.register_forward_hook(lambda *_: None)
    assert "lm_head  Linear  left: it has hooks" in repr(fast.apply_to(model, exclude="ELU"))
    model = model_of("llama")
    parametrize.register_parametrization(model.lm_head, "weight", torch.nn.Identity())
    assert "left: it is a class derived from Linear" in repr(fast.apply_to(model))
    model = model_of("llama")
    model.lm_head = torch.nn.Sequential(model.lm_head)
    assert "left: it is no Linear" in repr(fast.apply_to(model))
    model = model_of("llama")
    model.lm_head.lora_A = torch.nn.ModuleDict()
    assert "left: it has adapters" in repr(fast.apply_to(model))
    model = model_of("llama")
    applied = fast.apply_to(model)
    assert applied.left == []
    seen: list[Any] = []
    model.lm_head.register_forward_hook(lambda _, __, output: seen.append(type(output)))
    assert type(step(model)[2]) is Tensor
    assert seen == [Tensor]
    parametrize.register_parametrization(model.lm_head, "weight", torch.nn.Identity())
    with pytest.raises(RuntimeError, match="lm_head has become ParametrizedHeadLinear since apply_to made it HeadLinear"):  # fmt: skip
        applied.revert()


class SavedWhole(torch.nn.Module):
    """A head as peft has it that is trained beside adapters: the layer, and a copy of it that learns."""

    active_adapter = "default"

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        self.original_module = layer
        self.modules_to_save = torch.nn.ModuleDict({"default": copy.deepcopy(layer)})

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.modules_to_save[self.active_adapter](*inputs, **named)


def test_a_head_that_is_trained_beside_adapters() -> None:
    model = model_of("llama")
    model.lm_head = SavedWhole(model.lm_head)
    known = step(model)[0]
    with fast.apply_to(model) as applied:
        assert [each.name for each in applied.replaced if "Head" in each.after] == ["lm_head.modules_to_save.default"]  # fmt: skip
        loss, _, logits, *_ = step(model)
        torch.testing.assert_close(loss, known)
        assert isinstance(logits, Logits)


@pytest.mark.parametrize("what", [torch.nn.ELU, None, "model", [torch.nn.ELU()]])
def test_what_is_no_model_is_refused(what: Any) -> None:
    """A class that nobody called, most of all."""
    with pytest.raises(TypeError, match=r"expected a module of torch.nn, got "):
        fast.apply_to(what)


def test_names_are_known() -> None:
    model = model_of("llama")
    with pytest.raises(ValueError, match=r"expected names of modules, .*ELU.*, got Elu$"):
        fast.apply_to(model, only="Elu")
    with pytest.raises(TypeError, match=r"heads: model.embed_tokens cannot be replaced: it is no Linear"):  # fmt: skip
        fast.apply_to(model, heads=["model.embed_tokens"])
    with pytest.raises(AttributeError, match="head"):
        fast.apply_to(model, heads="head")
    assert repr(fast.apply_to(model, heads=[])).endswith(
        "openaclnn.ELU  x 3"
    )  # which none of these touched
    fast.apply_to(model, heads="lm_head", memory=4 * WORDS * 7, accumulate=torch.float32)
    assert model.lm_head.options == {"memory": 4 * WORDS * 7, "accumulate": torch.float32}
    assert isinstance(step(model)[2], Logits)
    assert repr(fast.apply_to(model, heads="lm_head")) == "nothing to replace"


def test_the_page_of_moving_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    """docs/migrating.md, of a model that it takes for granted."""
    page = Path(__file__).parent.parent / "docs" / "migrating.md"
    (block,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    exec(block, {"model": (model := model_of("gemma"))})
    assert "openaclnn.HeadLinear" in capsys.readouterr().out
    assert isinstance(step(model)[2], Logits)


def test_copies_and_files_keep_it() -> None:
    model = model_of("gemma")
    fast.apply_to(model)
    expected = step(model)[0]
    copied = copy.deepcopy(model)
    assert copied.lm_head.weight is copied.model.embed_tokens.weight
    loss, _, logits = step(copied)
    assert torch.equal(loss, expected)
    assert logits.head is copied.lm_head
    assert model.lm_head.deferred is False
    file = io.BytesIO(pickle.dumps(model))
    assert torch.equal(step(pickle.load(file))[0], expected)


def test_a_model_is_compiled_into_one_graph() -> None:
    before, after = model_of("gemma"), model_of("gemma")
    fast.apply_to(after)
    compiled = torch.compile(after, backend="aot_eager", fullgraph=True)
    expected, gradients, _ = step(before)
    output = compiled(IDS, labels=LABELS)
    output.loss.backward()
    torch.testing.assert_close(output.loss, expected)
    assert output.logits.tensor is None
    torch.testing.assert_close(after.lm_head.weight.grad, gradients[0])


# A linear layer and a loss of one's own.


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = torch.nn.Linear(8, FEATURES), torch.nn.Linear(FEATURES, WORDS)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(x).tanh())


def classifiers() -> tuple[Classifier, Classifier, Tensor, Tensor]:
    torch.manual_seed(0)
    model = Classifier()
    other = copy.deepcopy(model)
    fast.apply_to(other, heads="head")
    return model, other, torch.randn(3, 5, 8), torch.randint(WORDS, (3, 5))


LOSSES: dict[str, tuple[Callable[[Any, Tensor], Tensor], bool]] = {
    "view": (lambda logits, y: F.cross_entropy(logits.view(-1, WORDS), y.view(-1)), True),
    "flatten": (lambda logits, y: F.cross_entropy(logits.flatten(0, 1), y.flatten(), label_smoothing=0.1), True),
    "row": (lambda logits, y: F.cross_entropy(logits[0], y[0], reduction="sum"), True),
    "rows": (lambda logits, y: F.cross_entropy(logits[:, 1:, :].reshape((-1, WORDS)), y[:, 1:].flatten(), torch.ones(WORDS)), True),
    "index": (lambda logits, y: F.cross_entropy(logits[torch.tensor([2, 0]), 1], y[[2, 0], 1], reduction="none").sum(), True),
    "ours": (lambda logits, y: functional.cross_entropy(logits.float().reshape(-1, WORDS), y.view(-1), inplace=True), True),
    "transposed": (lambda logits, y: F.cross_entropy(logits.transpose(1, 2), y), False),
    "classes": (lambda logits, y: F.cross_entropy(logits[..., :WORDS - 1][0], y[0].clamp(max=9)), False),
    "two steps": (lambda logits, y: F.nll_loss(F.log_softmax(logits[0], -1), y[0]), False),
    "another tanh": (lambda logits, y: F.cross_entropy((3 * (logits / 2).tanh())[0], y[0]), False),
    "tensor": (lambda logits, y: F.cross_entropy((logits * torch.tensor(2.0))[0], y[0]), False),
    "sum": (lambda logits, y: F.cross_entropy((1 - logits)[0] + logits[1] / 2, y[0]), False),
    "probabilities": (lambda logits, y: F.cross_entropy(logits[0], torch.eye(WORDS)[y[0]]), False),
    "legacy": (lambda logits, y: F.cross_entropy(logits[0], y[0], None, False), False),
    "accuracy": (lambda logits, y: (logits.argmax(-1) == y).float().mean() + 0 * logits.sum() + len(logits), False),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.filterwarnings("ignore:size_average and reduce args:UserWarning")
def test_a_loss_by_hand(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without logits where rows of them are all it takes, else from the tensor; the gradients are the same."""
    model, other, x, y = classifiers()
    loss, served = LOSSES[name]
    materialized: list[Logits] = []
    whole = Logits.materialize
    monkeypatch.setattr(Logits, "materialize", lambda self: (materialized.append(self), whole(self))[1])  # fmt: skip
    results = [loss(each(x), y) for each in (model, other)]
    torch.testing.assert_close(results[1], results[0])
    assert bool(materialized) != served
    for one, two in zip(*(torch.autograd.grad(result, [*each.parameters()]) for result, each in zip(results, (model, other), strict=True)), strict=True):  # fmt: skip
        torch.testing.assert_close(two, one, rtol=1e-5, atol=1e-7)


def test_logits_are_a_tensor_to_whoever_asks() -> None:
    model, other, x, _ = classifiers()
    expected, logits = model(x), other(x)
    assert repr(logits) == f"Logits(shape=(3, 5, {WORDS}), dtype=torch.float32, not computed)"
    assert (logits.dim(), logits.ndim, logits.size(-1), logits.device) == (3, 3, WORDS, x.device)
    assert logits.contiguous() is logits.to(logits.device) is logits
    assert not hasattr(logits, "keys")
    assert logits.tensor is None
    torch.testing.assert_close(torch.stack([logits, logits]).detach(), torch.stack([expected] * 2))
    torch.testing.assert_close(expected @ torch.ones(WORDS), logits @ torch.ones(WORDS))
    logits[0] = 0.0
    assert not logits[0].any()
    assert repr(logits) == f"Logits(shape=(3, 5, {WORDS}), dtype=torch.float32)"
    assert [tuple(each.shape) for each in logits] == [(5, WORDS)] * 3
    assert type(other.eval()(x)) is Tensor


def test_logits_looked_at_without_gradients_have_them_later() -> None:
    """Metrics are computed where nothing is recorded; the tensor is the same for a loss of it that comes after."""
    gradients = []
    for model in (model_of("llama"), model_of("llama")):
        if gradients:
            fast.apply_to(model)
        logits = model(IDS, labels=LABELS).logits
        with torch.no_grad():
            assert not (logits.exp() * 2).requires_grad
            assert not logits[:, 1:].softmax(-1).requires_grad
        with torch.inference_mode():
            logits.argmax(-1)
        logits.log_softmax(-1)[..., 0].sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for gradient, other in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, other)


def test_logits_outlive_what_made_them() -> None:
    """Cross entropy after `revert`, and after the block of autocast that cast the layer's input."""
    model, _, x, y = classifiers()
    with fast.apply_to(model, heads="head"):
        kept, rows = model(x), model(x).flatten(0, 1)
    torch.testing.assert_close(F.cross_entropy(rows, y.flatten()), F.cross_entropy(model(x).flatten(0, 1), y.flatten()))  # fmt: skip
    assert torch.equal(kept.materialize(), model(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(x)
        fast.apply_to(model, heads="head")
        logits = model(x)
    assert torch.equal(logits.materialize(), expected)
    loss = F.cross_entropy(model(x)[0], y[0])
    assert loss.dtype is torch.float32
