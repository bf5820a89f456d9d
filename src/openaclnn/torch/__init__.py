"""PyTorch's face of the operators.

    import openaclnn.torch as fast
    loss = fast.nn.CrossEntropyLoss()(logits, target)      # modules and functions, forward and backward by our kernels
    fast.apply_to(model)                                   # a model's losses, activations and language-model head, in place
    with fast.use():                                       # PyTorch's own functions by our kernels, in this block
        torch.nn.functional.smooth_l1_loss(x, y).backward()

Every operator is in `torch.ops.openaclnn` too. docs/pytorch.md is the guide.

- Operators: `schema.py` has their schemas and where results lie, `kernels.py` calls ours, `expressions.py` has formulas as PyTorch's operations, float64
  among them, `gradients.py` the derivatives, `library.py` makes `torch.ops.openaclnn`; `refusals.py` has what is refused.
- Functions and modules: `functional.py` and `nn.py`; those that are one operator are signatures in `elementwise.py`. `dispatch.py` makes functions of these, says
  which way a call goes and counts who served it, `fused_backward.py` writes a gradient with its loss, `linear.py` has the cross entropy of a linear layer without its
  logits, `log_probs.py` log-probabilities, entropies and divergences of logits and of such layers, and cross entropy against shares of classes; `adopt.py`
  replaces the modules of a model.
- PyTorch's own operators, replaced: `override.py`; as machine code `signatures.py`, `native.py` (PyTorch's stable C interface) and `entries.py`.
- `parallel/` has the losses over many devices. `private.py` has all that is asked of PyTorch under private names, with a way that does without.
"""

from openaclnn.torch import refusals  # first: it looks which PyTorch there is  # isort: skip
from openaclnn.torch import functional, library, nn
from openaclnn.torch.adopt import apply_to
from openaclnn.torch.functional import check_targets
from openaclnn.torch.override import disable, enable, served, use

__all__ = ["apply_to", "check_targets", "disable", "enable", "functional", "nn", "served", "use"]
del library, refusals
