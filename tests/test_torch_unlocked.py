"""Machine code in PyTorch's dispatcher works while another thread has the interpreter's lock, and reads nothing that is gone."""

from __future__ import annotations

import contextvars
import ctypes
import sys
import threading
import time
import weakref
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as theirs

import openaclnn
from openaclnn.core import products
from openaclnn.engines.machine import builtins
from openaclnn.repeat import native_slots as at
from openaclnn.torch import disable, enable, override, served, use
from openaclnn.torch.native import stable_interface
from openaclnn.torch.override import OVERRIDES

pytestmark = pytest.mark.skipif(stable_interface() is None, reason="kernels are Python's here")

LINKS = 1000


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    disable()


def count(name: str) -> int:
    """Calls that machine code served."""
    return sum(int(native.served) for native in override._natives[name])


def chain(x: Any, step: Callable[[Any], Any]) -> Any:
    """A graph whose derivative is many operators of PyTorch's, run in one call that gives the interpreter's lock away."""
    value = x
    for _ in range(LINKS):
        value = step(value)
    return value


def of_classes(shape: tuple[int, ...], *positions: int) -> tuple[Any, Callable[[Any], Any]]:
    return torch.randn(shape), lambda x: theirs.nll_loss(
        x, torch.zeros(positions, dtype=torch.int64, device=x.device)
    ).expand(shape)


STEPS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "smooth_l1_loss_backward": (torch.linspace(-1, 1, 16), lambda x: theirs.smooth_l1_loss(x, torch.zeros_like(x)).expand(16)),
    "nll_loss_backward": of_classes((2, 8), 2),
    "nll_loss2d_backward": of_classes((1, 4, 2, 2), 1, 2, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_thread_computes_while_another_has_the_lock(name: str) -> None:
    computes_alone(name, *STEPS[name])


def computes_alone(name: str, start: Any, step: Callable[[Any], Any]) -> None:
    """A thread's derivative of a chain is computed by machine code to its end while this thread keeps the lock."""
    x = start.clone().requires_grad_()
    expected = torch.autograd.grad(chain(x, step).sum(), x)[0]
    began, sleep = threading.Event(), ctypes.PyDLL(None).usleep  # which keeps the lock
    gradients = []

    def work() -> None:
        began.set()
        # What the graph has are Python's objects, too: letting go of them takes the lock.
        gradients.append(torch.autograd.grad(value, x, retain_graph=True)[0])

    interval = sys.getswitchinterval()
    with use():
        for _ in range(2):  # kinds are learnt
            torch.autograd.grad(chain(x, step).sum(), x)
        value = chain(x, step).sum()
        before = count(name)
        thread = threading.Thread(target=work)
        thread.start()
        began.wait()
        try:
            sys.setswitchinterval(1000)  # from here on, who has the lock keeps it
            until = time.monotonic() + 20
            while count(name) < before + LINKS and time.monotonic() < until:
                if count(name) == before:
                    time.sleep(0)  # it has not begun
                else:
                    sleep(1000)
            alone = count(name) - before
        finally:
            sys.setswitchinterval(interval)
        thread.join()
    assert alone == LINKS
    torch.testing.assert_close(gradients[0], expected)


def test_what_is_chosen_in_a_context_that_outlives_its_block() -> None:
    x, y = torch.randn(16), torch.randn(16)

    def references() -> int:
        return ctypes.c_uint32.from_address(products.references_at()).value

    with use():
        for _ in range(2):
            theirs.smooth_l1_loss(x, y)
        assert references() == products.REFERENCES
        with openaclnn.use_engine("numpy"), openaclnn.use_product("910b"):
            copied = contextvars.copy_context()
        assert references() > products.REFERENCES
        before = count("smooth_l1_loss")
        copied.run(theirs.smooth_l1_loss, x, y)
        assert count("smooth_l1_loss") == before
        theirs.smooth_l1_loss(x, y)
        assert count("smooth_l1_loss") == before + 1
        del copied
        assert references() == products.REFERENCES


def test_kinds_come_and_go_beside_threads() -> None:
    """More kinds than a fast path keeps, a configuration that forgets them all, and PyTorch's own kernels back in between."""
    x = torch.linspace(-2, 2, 16).requires_grad_()
    zeros = torch.zeros(16)
    values = [theirs.smooth_l1_loss(x, zeros, beta=beta) for beta in (0.5, 1.0, 2.0)]
    expected = [torch.autograd.grad(loss, x, retain_graph=True)[0] for loss in values]
    ended = threading.Event()

    def work() -> int:
        rounds = 0
        while not ended.is_set():
            for loss, known in zip(values, expected, strict=True):
                torch.testing.assert_close(
                    torch.autograd.grad(loss, x, retain_graph=True)[0], known
                )
            rounds += 1
        return rounds

    road = OVERRIDES["smooth_l1_loss_backward"].kernel.cache
    assert road is not None
    with ThreadPoolExecutor(3) as pool:
        enable()
        workers = [pool.submit(work) for _ in range(3)]
        try:
            for number in range(60):
                layout = torch.randn(3 + number, 2)[:, 0]  # with gaps
                y = layout.requires_grad_()
                torch.autograd.grad(
                    theirs.smooth_l1_loss(y, torch.zeros_like(y), beta=1 + number), y
                )
                if number % 7 == 0:
                    road.forget()
                if number % 20 == 0:
                    enable()
        finally:
            ended.set()
        assert all(worker.result() > 0 for worker in workers)
    torch.autograd.grad(theirs.smooth_l1_loss(y, torch.zeros_like(y), beta=0.1), y)
    for _ in range(3):
        road.forget()
    assert len(road._published._lists) == 1  # nobody reads any more


def test_many_calls_leave_nothing_behind() -> None:
    x, target = torch.randn(2, 8), torch.tensor([1, 3])
    with use():
        for _ in range(100):
            theirs.nll_loss(x, target)
        road = OVERRIDES["nll_loss_forward"].kernel.cache
        assert road is not None
        lists, blocks = len(road._published._lists), sys.getallocatedblocks()
        for _ in range(20_000):
            theirs.nll_loss(x, target)
        assert len(road._published._lists) == lists
        assert sys.getallocatedblocks() < blocks + 500
        assert served()["nll_loss_forward"].ours == 20_100


def test_threads_that_learn_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of ones have a place each, as many as there are places, and a call of any number of classes is right."""
    with use():
        native = override._natives["nll_loss_forward"][0]
        before, block = len(native._ones), native._block
        fresh = [torch.ones(50 + number) for number in range(at.MAX_ONES + 4 - before)]
        publish, later = builtins.publish, iter(fresh)

        def overtaken(address: int, word: int) -> None:
            """Another thread learns after this one knows what to write, and before it writes."""
            ones = None if address == native._slot(at.CACHE) else next(later, None)
            if ones is not None:
                native.learn(ones)
            publish(address, word)

        monkeypatch.setattr(builtins, "publish", overtaken)
        for ones in later:
            native.learn(ones)
        monkeypatch.undo()
        places = [block[at.ONES + at.ONES_SLOTS * room :][: at.ONES_SLOTS] for room in range(at.MAX_ONES)]  # fmt: skip
        learnt = {length for length, *_ in places[before:]}
        assert len(learnt) == at.MAX_ONES - before
        assert learnt <= set(map(len, fresh))
        assert len({handle for *_, handle in places} - {0}) == at.MAX_ONES
        # Those that have a place are served by machine code from the second call on, the others by Python.
        for ones in fresh:
            classes = len(ones)
            x, target = torch.randn(2, classes), torch.tensor([1, classes - 1])
            theirs.nll_loss(x, target)
            served_before = count("nll_loss_forward")
            loss = theirs.nll_loss(x, target)
            assert (count("nll_loss_forward") > served_before) == (classes in learnt)
            torch.testing.assert_close(loss, -(x[0, 1] + x[1, -1]) / 2)


def test_a_list_lives_as_long_as_somebody_may_read_it() -> None:
    from openaclnn.repeat.code.read_copy_update import Published, Readers
    from openaclnn.repeat.slots import Entry

    class Held:
        pass

    words = array("q", [0, 0])
    readers, published = Readers(words.buffer_info()[0]), Published()
    published.admit(readers)

    def enter() -> Any:
        held = Held()
        entry = Entry()
        entry.relies_on = held
        published.replace([entry])
        return weakref.ref(held)

    first = enter()
    turn = words[1]
    words[0] += turn  # somebody comes, and finds the first
    second = enter()
    for _ in range(5):
        later = words[1]
        words[0] += later  # others come and go all the time
        third = enter()
        words[0] -= later
    assert first() is not None
    assert third() is not None
    words[0] -= turn
    for _ in range(3):
        last = enter()
    assert (first(), second(), third()) == (None, None, None)
    assert last() is not None
    assert len(published._lists) == 1
