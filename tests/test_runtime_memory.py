"""The table of allocations, against a model."""

import gc
import threading

from hypothesis import given, settings, strategies as st

from openaclnn import acl
from openaclnn.runtime.memory import Allocation, AllocationTable

# Blocks on a small line of addresses, so that neighbours and interior addresses really occur.
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "find"]), st.integers(0, 200), st.integers(1, 40)),
    max_size=80,
)


@given(STEPS)
@settings(max_examples=100, deadline=None)
def test_table_against_a_model(steps):
    table, model = AllocationTable(), {}
    for action, address, size in steps:
        owner = next((b for b in model.values() if b.address <= address < b.end), None)
        if action == "add":
            if any(b.address < address + size and address < b.end for b in model.values()):
                continue
            model[address] = Allocation(address, size, "device", "cpu")
            assert table.count(model[address], 10**6)
            table.add(model[address])
        elif action == "remove" and owner is not None:
            assert table.remove(owner)
            assert not table.remove(owner)
            del model[owner.address]
        else:
            assert table.find(address) is owner
        assert table.used("cpu") == sum(block.size for block in model.values())
    for address in range(-1, 250):
        owner = next((b for b in model.values() if b.address <= address < b.end), None)
        assert table.find(address) is owner
    assert set(table.blocks()) == set(model.values())


@given(st.lists(st.one_of(st.integers(1, 5000), st.just(None)), max_size=40), st.randoms())
@settings(max_examples=25, deadline=None)
def test_malloc_and_free_against_a_model(sizes, random):
    from openaclnn.runtime import find_allocation

    acl.aclrtSetDevice(0)
    live = {}
    try:
        for size in sizes:
            if size is not None:
                status, pointer = acl.aclrtMalloc(size, 0)
                assert status == 0
                assert pointer % 64 == 0
                real = (size + 63) // 32 * 32
                assert all(pointer + real <= p or p + s <= pointer for p, s in live.items())
                live[pointer] = real
            elif live:
                pointer = random.choice(list(live))
                del live[pointer]
                assert acl.aclrtFree(pointer) == 0
                assert acl.aclrtFree(pointer) == 107000
            for pointer, real in live.items():
                for inside in (pointer, pointer + real // 2, pointer + real - 1):
                    assert find_allocation(inside).address == pointer
    finally:
        assert acl.aclrtResetDevice(0) == 0
    assert all(find_allocation(pointer) is None for pointer in live)


def test_capacity():
    table = AllocationTable()
    blocks = [(60, "cpu"), (41, "cpu"), (41, "other"), (40, "cpu")]
    sixty, more, other, forty = (Allocation(0, size, "device", name) for size, name in blocks)
    assert table.count(sixty, 100)
    assert not table.count(more, 100)
    assert table.count(other, 100)
    assert table.count(forty, 100)
    for _ in range(2):
        table.uncount(forty)
    assert table.used("cpu") == 60


def test_threads():
    acl.aclrtSetDevice(0)
    mistakes = []

    def churn():
        acl.aclrtSetDevice(0)
        for i in range(300):
            status, pointer = acl.aclrtMalloc(1 + i, 0)
            mistakes.extend(code for code in (status, acl.aclrtFree(pointer)) if code)
        acl.aclrtResetDevice(0)

    threads = [threading.Thread(target=churn) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mistakes == []
    assert acl.aclrtResetDevice(0) == 0


def test_of_many_threads_one_frees():
    acl.aclrtSetDevice(0)
    for _ in range(50):
        _, pointer = acl.aclrtMalloc(64, 0)
        barrier, codes = threading.Barrier(4), []

        def free(pointer=pointer, barrier=barrier, codes=codes):
            barrier.wait()
            codes.append(acl.aclrtFree(pointer))

        threads = [threading.Thread(target=free) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [0, 107000, 107000, 107000]
    acl.aclrtResetDevice(0)


def test_a_finaliser_may_free_at_any_time():
    acl.aclrtSetDevice(0)

    class Owner:
        def __init__(self):
            self.pointer = acl.aclrtMalloc(64, 0)[1]
            self.event = acl.aclrtCreateEvent()[1]
            self.cycle = self  # only the garbage collector ends it

        def __del__(self):
            codes.append(acl.aclrtFree(self.pointer))
            codes.append(acl.aclrtDestroyEvent(self.event))

    codes = []
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)  # as often as it gets
    try:
        for _ in range(500):
            Owner()
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert codes == [0] * 1000
    assert acl.aclrtResetDevice(0) == 0
