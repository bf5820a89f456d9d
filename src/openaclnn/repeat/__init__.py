"""The fast path: a call like one that was made before skips bind, check and plan. docs/calls.md is its guide.

The first call of its kind takes the slow path (bind, check, plan, choose an engine), which then makes a *cache entry* of it: what `torch.compile`
or Triton call a specialization. The entry has *guards* (the arrays' library, dtypes, device, how they lie; the options by value) and what runs calls that
pass them. The next call goes through three steps, in machine code that is written once for all operators:

- *recognise*: read the arguments, and search the operator's entries for the first whose guards all hold;
- *allocate*: see that outputs which the caller gave overlap nothing, or make them;
- *run*: call the engine's runner, which is one function of words: addresses, sizes, strides, numbers (`engines/machine/callers.py`).

Sizes are no guard where all arrays are row-major: they are read from one of them, the *shape source*, and all other shapes must follow from its. Few
elements may have any strides, and many options may be other numbers (`core.plan.Free`): kernels take those as arguments. Where a guard fails, the call
takes the slow path: that is where everything is refused, and said. Reading arguments runs no Python code, so nothing changes in between; where allocating
may have run some, the arguments are read again before the kernel runs. An entry never changes, and is held while it is used, with what it relies on.

In the order to read, each imports from those below it:

    phases.py        two-phase calls: the cache that phase one looks in, and what phase two runs
    cache.py         the cache of an operator's plain calls: makes the builtin, and enters what the slow path found
    specialize.py    makes a cache entry of a call
    code/            the machine code: `recognise.py`, `outputs.py`, `fast_path.py`; `phase_one.py` for two-phase calls; `native.py` for PyTorch's dispatcher; the list of entries
    readers.py       what must hold before machine code may read NumPy's arrays and PyTorch's tensors
    slots.py         where words lie in memory: an entry, an operator's control block; `native_slots.py`: the block of a kernel in PyTorch's dispatcher
"""
