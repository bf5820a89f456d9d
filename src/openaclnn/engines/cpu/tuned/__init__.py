"""Tuned forms: code for some plans of a kernel that is faster than the plain form of its formula.

Each stands here under the kernel's name with the plans it serves and the gain that was measured; tests hold it to the
plain form. A file put here is found by itself; in the order to read there are `l1_loss.py` and `elu.py`.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
