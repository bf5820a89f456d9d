"""PyTorch's face of the operators.

    import openaclnn.torch as fast
    loss = fast.nn.CrossEntropyLoss()(logits, target)      # modules and functions, forward and backward by our kernels
    fast.apply_to(model)                                   # a model's losses, activations and language-model head, in place
    with fast.use():                                       # PyTorch's own functions by our kernels, in this block
        torch.nn.functional.smooth_l1_loss(x, y).backward()

Every operator is in `torch.ops.openaclnn` too. docs/pytorch.md is the guide.

- Operators: `schema.py` has their schemas, `kernels.py` calls ours (`wide.py`: float64; `layouts.py`: where results lie), `gradients.py` has the
  derivatives (`expressions.py`: formulas as PyTorch's operations), `library.py` makes `torch.ops.openaclnn`; `refusals.py` has what is refused, `counts.py` who served.
- Functions and modules: `functional.py` and `nn.py`; those that are one operator `derived.py` makes of their signatures, in `activations.py` and `losses.py`. `dispatch.py` and `autograd.py` are their shortest way to a kernel, `fused_backward.py` writes a gradient with its loss,
  `linear.py` has the cross entropy of a linear layer without its logits, `linear_log_probs.py` its log-probabilities and entropies, `products.py` its matrix products; `log_probs.py` has those of logits, divergences, and cross entropy
  against shares of classes; `adopt.py` replaces the modules of a model.
- PyTorch's own operators, replaced: `override.py` and `composites.py`; as machine code `signatures.py`, `stable_abi.py` (the stable C interface),
  `entries.py` and `native.py`.
- `parallel/` has the losses over many devices. `private.py` has all that is asked of PyTorch under private names, with a way that does without.
"""

from openaclnn.torch import refusals  # first: it looks which PyTorch there is  # isort: skip
from openaclnn.torch import functional, library, nn
from openaclnn.torch.adopt import apply_to
from openaclnn.torch.functional import check_targets
from openaclnn.torch.override import disable, enable, served, use

__all__ = ["apply_to", "check_targets", "disable", "enable", "functional", "nn", "served", "use"]
del library, refusals
