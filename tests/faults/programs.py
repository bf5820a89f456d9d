"""Programs over the runtime and the two-phase interface, written in bytes: each byte chooses a function or an argument. Whatever they do, every
status is a documented one and none says that the fault is ours; at the end nothing is left, and no byte changed outside of what was handed over.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from openaclnn import acl, aclnn
from openaclnn.core.declare import registry
from openaclnn.core.status import AclError, Status
from openaclnn.runtime.memory import find_allocation, used_bytes

__all__ = ["WORDS", "Wrong", "run_program"]

STATUSES = {int(status) for status in (*Status, *AclError)}
ODD: tuple[Any, ...] = (
    None,
    0,
    -1,
    1,
    2,
    3,
    7,
    64,
    100,
    2**31,
    2**63,
    2**64,
    "x",
    1.5,
    b"y",
    [],
    (),
    object(),
)
GUARD = 0xA5
STEPS = 60
WORDS = bytes(
    [1, 2, 0, 3, 0, 6, 0, 10, 0, 9, 0, 12, 1, 14, 0, 16, 0, 1, 18, 1, 20, 0, 22, 1, 24] * 4
)


class Wrong(AssertionError):  # noqa: N818
    """What no program may bring about."""


class Program:
    def __init__(self, data: bytes) -> None:
        self.data, self.place, self.calls = data, 0, 0
        self.kinds: dict[str, list[Any]] = {
            name: []
            for name in ("stream", "event", "context", "tensor", "executor", "memory", "pinned")
        }
        self.host = np.full(512 + 128, GUARD, np.uint8)
        self.array = self.host[64:-64]

    def byte(self) -> int:
        if self.place >= len(self.data):
            raise EOFError
        self.place += 1
        return self.data[self.place - 1]

    def odd(self) -> Any:
        return ODD[self.byte() % len(ODD)]

    def handle(self, kind: str) -> Any:
        """One of a kind, live or not; rarely something else."""
        draw, held = self.byte(), self.kinds[kind]
        if draw >= 240 or not held:
            return self.odd() if draw & 1 else None
        return held[draw % len(held)]

    def number(self) -> Any:
        draw = self.byte()
        return draw if draw < 200 else ODD[draw % 12]

    def address(self) -> Any:
        """Of device memory, perhaps inside it, or of the host's array; nothing that may be somebody's, as freed memory may: as in C, a copy to the host trusts
        an address that the runtime does not know."""
        draw = self.byte()
        if draw < 60:
            return self.array
        blocks = [
            find_allocation(pointer) for pointer in self.kinds["memory"] + self.kinds["pinned"]
        ]
        held = [block for block in blocks if block is not None]
        if not held or draw > 245:
            return draw
        block = held[draw % len(held)]
        return block.address + (0 if draw < 200 else draw % block.size)

    def status(self, name: str, status: Any) -> int:
        if type(status) is not int and not isinstance(status, int):
            raise Wrong(f"{name} returned {status!r}")
        if status not in STATUSES:
            raise Wrong(f"{name} returned {status}")
        self.calls += 1
        told = aclnn.aclGetRecentErrMsg() if status else ""
        if status and not told:
            raise Wrong(f"{name} returned {status} without a word")
        if status == 500000 or (status == 561000 and "call: expected to finish" in told):
            raise Wrong(f"{name} returned {status}: {told}")
        return int(status)

    def make(self, kind: str, name: str, *arguments: Any) -> None:
        status, value = getattr(acl, name)(*arguments)
        if self.status(name, status) == 0:
            self.kinds[kind].append(value)

    def do(self, name: str, *arguments: Any) -> None:
        answer = getattr(acl, name)(*arguments)
        self.status(name, answer[0] if isinstance(answer, tuple) else answer)

    def step(self) -> None:
        choice = self.byte() % 40
        handle, number, address = self.handle, self.number, self.address
        if choice == 0:
            self.do("aclInit", None)
        elif choice == 1:
            self.do("aclrtSetDevice", self.byte() // 250)
        elif choice in (2, 3):
            self.make("stream", "aclrtCreateStream")
        elif choice == 4:
            self.do("aclrtDestroyStream", handle("stream"))
        elif choice == 5:
            self.do("aclrtDestroyStreamForce", handle("stream"))
        elif choice in (6, 7):
            self.make("event", "aclrtCreateEvent") if self.byte() & 1 else self.make(
                "event", "aclrtCreateEventExWithFlag", number()
            )
        elif choice == 8:
            self.do("aclrtDestroyEvent", handle("event"))
        elif choice in (9, 10):
            self.do("aclrtRecordEvent", handle("event"), handle("stream"))
        elif choice == 11:
            self.do("aclrtStreamWaitEvent", handle("stream"), handle("event"))
        elif choice == 12:
            self.do("aclrtSynchronizeStream", handle("stream"))
        elif choice == 13:
            self.do("aclrtSynchronizeEventWithTimeout", handle("event"), self.byte() % 4)
        elif choice in (14, 15):
            self.make("memory", "aclrtMalloc", number(), 0)
        elif choice == 16:
            self.do("aclrtFree", handle("memory"))
        elif choice == 17:
            self.make("pinned", "aclrtMallocHost", number())
        elif choice == 18:
            self.do("aclrtFreeHost", handle("pinned"))
        elif choice in (19, 20):
            self.do("aclrtMemcpy", address(), number(), address(), number(), self.byte() % 6)
        elif choice == 21:
            self.do(
                "aclrtMemcpyAsync",
                address(),
                number(),
                address(),
                number(),
                self.byte() % 6,
                handle("stream"),
            )
        elif choice == 22:
            self.do("aclrtMemset", handle("memory"), number(), self.byte(), number())
        elif choice == 23:
            self.do(
                "aclrtMemsetAsync",
                handle("memory"),
                number(),
                self.byte(),
                number(),
                handle("stream"),
            )
        elif choice in (24, 25, 26):
            self.tensor()
        elif choice == 27:
            self.do("aclDestroyTensor", handle("tensor"))
        elif choice in (28, 29, 30):
            self.first_phase()
        elif choice in (31, 32):
            self.second_phase()
        elif choice == 33:
            self.make("context", "aclrtCreateContext", self.byte() // 250)
        elif choice == 34:
            self.do("aclrtDestroyContext", handle("context"))
        elif choice == 35:
            self.do("aclrtSetCurrentContext", handle("context"))
        elif choice == 36:
            self.do("aclrtResetDevice", self.byte() // 250) if self.byte() & 1 else self.do(
                "aclrtSynchronizeDevice"
            )
        elif choice == 37:
            self.do("aclrtSetStreamFailureMode", handle("stream"), self.byte() % 3)
        elif choice == 38:
            self.do("aclrtEventElapsedTime", handle("event"), handle("event"))
        else:
            self.do("aclFinalize") if self.byte() < 60 else self.do(
                "aclrtStreamQuery", handle("stream")
            )

    def tensor(self) -> None:
        shape = tuple(self.byte() % 5 for _ in range(self.byte() % 4))
        dtype = (0, 1, 27, 9, 3, 2)[self.byte() % 6] if self.byte() < 240 else self.odd()
        strides = None if self.byte() < 200 else tuple(self.byte() % 7 - 1 for _ in shape)
        storage = shape if self.byte() < 240 else self.odd()
        memory = self.handle("memory")
        tensor = acl.aclCreateTensor(shape, dtype, strides, self.byte() // 60, 2, storage, memory)
        if tensor is not None:
            self.kinds["tensor"].append(tensor)

    def first_phase(self) -> None:
        operators = registry()
        operator = operators[(self.byte() + 256 * (self.byte() & 1)) % len(operators)]
        arguments: list[Any] = []
        for parameter in operator.parameters:
            draw = self.byte()
            if draw > 245:
                arguments.append(self.odd())
            elif parameter.is_tensor:
                arguments.append(self.handle("tensor"))
            else:
                arguments.append(
                    parameter.default
                    if draw < 100 and isinstance(parameter.default, (int, float, str))
                    else draw % 4
                )
        name = f"{operator.name}GetWorkspaceSize"
        status, _, executor = getattr(aclnn, name)(*arguments)
        if self.status(name, status) == 0:
            self.kinds["executor"].append((operator.name, executor))

    def second_phase(self) -> None:
        held = self.kinds["executor"]
        if not held:
            return
        name, executor = held[self.byte() % len(held)]
        if self.byte() > 200:
            self.status(
                "aclSetAclOpExecutorRepeatable", aclnn.aclSetAclOpExecutorRepeatable(executor)
            )
        self.status(name, getattr(aclnn, name)(None, 0, executor, self.handle("stream")))


def run_program(data: bytes) -> int:
    """Run one to its end, and put everything away; how many calls it made."""
    program = Program(data)
    try:
        with contextlib.suppress(EOFError):
            for _ in range(STEPS):
                program.step()
    finally:
        for pinned in program.kinds["pinned"]:
            acl.aclrtFreeHost(pinned)
        program.do("aclrtResetDeviceForce", 0)
        acl.aclInit(None)  # a program that never began has nothing to finalise
        program.do("aclFinalize")
    host = program.host
    if (host[:64] != GUARD).any() or (host[-64:] != GUARD).any():
        raise Wrong("bytes beside the host's array changed")
    if used_bytes("cpu"):
        raise Wrong(f"{used_bytes('cpu')} bytes are left")
    return program.calls
