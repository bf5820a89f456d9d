"""Models of transformers with random weights, and the recipes under examples/ (those of many processes are in test_torch_parallel.py). What is not installed is
skipped; `pip install ".[recipes]"` has it.
"""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import openaclnn.torch as fast
from openaclnn.torch.adopt import HeadLinear, Logits
from test_torch_adopt import Sizes

RECIPES = Path(__file__).parent.parent / "examples" / "recipes"
pytestmark = pytest.mark.filterwarnings("ignore")  # what these libraries say of each other

WORDS = 203
COMMON = {
    "vocab_size": WORDS, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 8, "max_position_embeddings": 32,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"tie_word_embeddings": False},
    "gemma": {},
    "gemma2": {"final_logit_softcapping": 4.0},
    "gemma3_text": {"final_logit_softcapping": 4.0},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0},
}  # fmt: skip


def model_of(kind: str) -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    options = {"vocab_size": WORDS} if kind == "gpt2" else COMMON
    config = transformers.AutoConfig.for_model(kind, bos_token_id=1, eos_token_id=2, pad_token_id=0, **options | MODELS[kind])  # fmt: skip
    return transformers.AutoModelForCausalLM.from_config(config).train()


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_of_transformers_never_has_logits(kind: str) -> None:
    before = model_of(kind)
    after = copy.deepcopy(before)
    applied = fast.apply_to(after)
    assert [each.name for each in applied.replaced if "HeadLinear" in each.after] == ["lm_head"]
    ids = torch.randint(3, WORDS, (3, 12))
    labels = torch.where(torch.arange(12) < 2, -100, ids)
    for named in ({}, {"num_items_in_batch": torch.tensor(11)}):
        results = []
        for model in (before, after):
            model.zero_grad()
            with Sizes() as sizes:
                output = model(input_ids=ids, labels=labels, **named)
                output.loss.backward()
            results.append((output.loss.detach(), [each.grad for each in model.parameters()]))
            logits = sizes.largest >= ids.numel() * WORDS
            assert logits == (model is before)
            assert isinstance(output.logits, Tensor if logits else Logits)
        torch.testing.assert_close(results[1], results[0], rtol=2e-5, atol=1e-6)
    with torch.no_grad():
        for named in ({}, {"labels": labels}):
            one, other = (model.eval()(input_ids=ids, **named) for model in (before, after))
            torch.testing.assert_close(other.logits, one.logits)
        generated = [model.generate(ids[:1], max_new_tokens=3, do_sample=False) for model in (before, after)]  # fmt: skip
    assert torch.equal(*generated)
    applied.revert()
    assert [*map(type, after.modules())] == [*map(type, before.modules())]
    assert type(after.train()(input_ids=ids, labels=labels).logits) is Tensor


@pytest.mark.parametrize(
    ("name", "library"),
    [("plain_loop", "torch"), ("hugging_face_trainer", "accelerate"), ("lightning_module", "lightning")],
)  # fmt: skip
def test_a_recipe_trains_as_without_its_line(
    name: str, library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "hugging_face_trainer":
        pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip(library, reason=f"{library} is not installed")
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    ours = recipe.train(steps=3)
    assert HeadLinear.__name__ in capsys.readouterr().out
    recipe.fast = SimpleNamespace(apply_to=lambda *_, **__: None)
    torch.testing.assert_close(ours, recipe.train(steps=3), rtol=1e-5, atol=0)
    assert len(ours) == 3
