"""The cache of an operator's calls: an entry for each specialization, filled by the slow path, searched by machine code.

An entry's key is the arrays' library, dtypes and device, which arrays there are and how they lie, and the options by value; `specialize.py` says
when sizes, strides and numbers are no part of it. `code/fast_path.py` writes the builtin that finds a call's entry by reading its arguments;
docs/calls.md says why that is enough.
"""

from __future__ import annotations

import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from openaclnn.core import products
from openaclnn.core.declare import Operator
from openaclnn.core.forks import undivided
from openaclnn.core.plan import Plan
from openaclnn.engines import dispatch
from openaclnn.engines.dispatch import Choice
from openaclnn.engines.machine import unusable
from openaclnn.repeat import slots as at
from openaclnn.repeat.readers import numpy_is_readable, torch_functions
from openaclnn.repeat.specialize import Parameters, entry_of, library_of

if TYPE_CHECKING:
    from openaclnn.repeat.code.read_copy_update import Readers


class CallCache:
    """The fast path of an operator's plain calls: `call(*arrays, *options, product)`, or NotImplemented.

    Several results are a tuple. An `ordered` one makes no result of inputs whose axes lie in another order than row-major.
    """

    by_value = frozenset((float, int, bool, str, type(None)))
    """Types of options that cannot change."""

    def __init__(self, declared: Operator, ordered: bool = False) -> None:
        self._ordered = ordered
        parameters = [p for group in declared.plain_parameters for p in group]
        self._arrays = [p for p in parameters if p.is_tensor]
        if declared.output.in_place:  # what is read and what is written, in one
            self._arrays.append(declared.output)
        # Of several outputs a plain call has the first alone, for all.
        self._passed = [p.python_name for p in self._arrays]
        self._arrays += [p for p in declared.outputs if p not in self._arrays]
        self._names = tuple([p.name for p in self._arrays])
        self._outputs = declared.output_names
        self._inputs = len(self._arrays) - len(self._outputs)
        self._result_type = declared.result_type
        self._options = tuple([p.python_name for p in parameters if not p.is_tensor])
        self._parameters = Parameters(self._names[: self._inputs], self._outputs, self._options)
        fits = len(self._arrays) <= at.MAX_ARRAYS and len(self._options) <= at.MAX_OPTIONS
        self._fits = fits  # into an entry
        self._control: Any = None
        self._published: Any = None  # its entries, once there is machine code to read them
        self._lock = threading.RLock()  # a finaliser may come in between
        self._builtin: Callable[..., Any] = no_fast_path
        self.call = self._builtin
        products.listeners.append(self.forget)

    @undivided
    def forget(self) -> None:
        """No entry is known any more."""
        with self._lock:
            if self._published is not None:
                self._published.replace(())

    def make(
        self,
        plan: Plan,
        choice: Choice,
        arguments: Mapping[str, Any],
        values: Mapping[str, Any],
    ) -> Any:
        """Make a call, the first of its specialization, by an entry that serves the next one, too: its result, or NotImplemented.

        `values` has the arguments' views, and those of outputs that are yet to be made.
        """
        arrays, options = (
            [arguments[name] for name in names] for names in (self._passed, self._options)
        )
        views = [values[name] for name in self._names]
        if self._result_type is not None:
            out = arrays.pop()
            outputs = [None] * len(self._outputs) if out is None else out
            arrays += outputs
            if len(plan.more) + 1 < len(outputs) and not plan.classes:
                return NotImplemented  # where tensors are empty, so may be what is not written
        library = library_of(arrays) if self._sayable(options) else 0
        if not library:
            return NotImplemented
        made = entry_of(self._parameters, library, arrays, options, plan, choice, views)
        if made is None:
            return NotImplemented
        entry, _ = made
        self._enter(entry, library)
        result = self._builtin(*arrays, *options, None)
        if result is NotImplemented:
            # What is refused may come again and again: none of that stays.
            with self._lock:
                self._published.replace([other for other in self.entries if other is not entry])
            return result
        if self._result_type is None:
            return result
        return tuple.__new__(self._result_type, result)

    def _sayable(self, options: Sequence[Any]) -> bool:
        """Whether an entry can say what arguments are, with these options."""
        return self._fits and unusable() is None and self.by_value.issuperset(map(type, options))

    @property
    def entries(self) -> Sequence[at.Entry]:
        """What is known, the oldest first."""
        return () if self._published is None else self._published.entries

    def _enter(self, entry: at.Entry, library: int) -> None:
        """Let the fast path find an entry."""
        if self._control is None:
            self._open()
        if library == at.TORCH and not self._control[at.TENSOR]:
            self._admit_torch()
        if self._builtin is no_fast_path:
            self.call = self._builtin = self._callable()
        with self._lock:
            known = self._published.entries
            self._published.replace((*known[1 - at.MAX_ENTRIES :], entry))

    def _open(self) -> None:
        """Have a control block and a list of entries. Several threads may make an operator's first call: machine code is given the address of the
        first block, which nobody may take the place of."""
        from openaclnn.repeat.code.read_copy_update import Published

        control = array("q", bytes(8 * at.CONTROL_SLOTS))
        for where, held in (
            (at.PRODUCT, products.product_variable), (at.ENGINE, dispatch.engine_variable), (at.PIN, weakref.ref),
        ):  # fmt: skip
            control[where] = id(held)
        control[at.CHOSEN], control[at.CHOSEN_NOWHERE] = (
            products.references_at(),
            products.REFERENCES,
        )
        # Since 3.12 the interpreter collects between two steps of Python code.
        control[at.COLLECTS] = sys.version_info < (3, 12)
        if numpy_is_readable():
            control[at.NDARRAY] = id(np.ndarray)
        published = Published()
        control[at.ENTRY_LIST] = published.address
        control[at.ARRAYS], control[at.OPTIONS] = len(self._arrays), len(self._options)
        control[at.OUTPUTS], control[at.ORDERED] = len(self._outputs), self._ordered
        with self._lock:
            if self._control is None:
                self._published, self._control = published, control

    def _callable(self) -> Callable[..., Any]:
        from openaclnn.engines.machine.builtins import builtin
        from openaclnn.repeat.code.fast_path import emit_plain_call

        return builtin("fast_path", emit_plain_call, self._control.buffer_info()[0], self)

    @undivided
    def admit(self, readers: Readers) -> None:
        """Let callers that are not Python read entries."""
        if self._control is None:
            self._open()
        with self._lock:
            self._published.admit(readers)

    def control_for_tensors(self) -> int:
        """Where its control block is; 0 before it reads PyTorch's tensors."""
        opened = self._control is not None and self._control[at.TENSOR]
        return int(self._control.buffer_info()[0]) if opened else 0

    def _admit_torch(self) -> None:
        tensor, functions = sys.modules["torch"].Tensor, torch_functions()
        assert functions is not None
        self._asked = functions  # of which the block has addresses alone
        control = self._control
        control[at.FROM_PYTHON], control[at.CURRENT_STREAM] = functions[:2]
        for where, function in enumerate(functions[2:], at.HAS_MODE):
            control[where] = id(function)
        control[at.PARAMETER] = id(sys.modules["torch"].nn.Parameter)
        control[at.TENSOR] = id(tensor)
        from openaclnn.engines.cpu.launching import pool

        pool.reconsider()


def nothing_chosen() -> bool:
    """No `use_product` and no `use_engine` block is around: what the fast path itself asks at every call."""
    return products.chosen_product() is None and dispatch.chosen_engine() is None


def no_fast_path(*arguments: Any, **named: Any) -> Any:
    return NotImplemented
