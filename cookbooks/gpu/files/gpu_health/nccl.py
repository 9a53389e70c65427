"""An all-reduce over all GPUs of the machine, in one process: right results, and the bandwidth.

Of packages it needs ``libnccl2`` alone: CUDA's driver API comes with the driver. It is a program of its own,
as NCCL can hang; it prints one JSON object, and takes the size of a buffer in bytes.

Each GPU brings its number + 1, so that every element of every result is n(n+1)/2: exact in float32. The bus
bandwidth is that of NVIDIA's nccl-tests (doc/PERFORMANCE.md): size / time * 2(n-1)/n, in GB/s.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

WARM_UP, ROUNDS = 5, 200
_FLOAT32, _SUM = 7, 0  # nccl.h: ncclFloat32, ncclSum
_NON_BLOCKING = 1  # cuda.h: CU_STREAM_NON_BLOCKING

Call = Callable[..., None]


class FailedError(Exception):
    """A call that failed, or a result that is wrong."""


def main() -> int:
    try:
        print(json.dumps(measure(int(sys.argv[1]))))
    except OSError as problem:
        print(json.dumps({"missing": str(problem)}))
    except FailedError as problem:
        print(json.dumps({"error": str(problem)}))
        return 1
    return 0


def measure(size: int) -> dict[str, Any]:
    """An OSError for a library that is not there; FailedError."""
    cuda, nccl = _cuda(), _nccl()
    count = c_int()
    cuda("cuInit", c_uint(0))
    cuda("cuDeviceGetCount", byref(count))
    ranks = [_Rank(cuda, number, size) for number in range(count.value)]
    comms = (c_void_p * len(ranks))()
    nccl("ncclCommInitAll", comms, c_int(len(ranks)), (c_int * len(ranks))(*range(len(ranks))))

    def reduce(rounds: int) -> None:
        for _ in range(rounds):
            nccl("ncclGroupStart")
            for rank, comm in zip(ranks, comms, strict=True):
                elements, kind = c_size_t(size // 4), (c_int(_FLOAT32), c_int(_SUM))
                buffers = c_void_p(rank.send.value), c_void_p(rank.receive.value)
                nccl("ncclAllReduce", *buffers, elements, *kind, c_void_p(comm), rank.stream)
            nccl("ncclGroupEnd")

    reduce(WARM_UP)
    for rank in ranks:
        rank.mark(rank.begin)
    reduce(ROUNDS)
    for rank in ranks:
        rank.mark(rank.end)
    seconds = max(rank.seconds() for rank in ranks) / ROUNDS
    expected = struct.pack("<f", len(ranks) * (len(ranks) + 1) / 2) * (size // 4)
    wrong = [number for number, rank in enumerate(ranks) if rank.result() != expected]
    if wrong:
        raise FailedError(f"wrong sums on GPU {', '.join(map(str, wrong))}")
    bus = size / seconds * 2 * (len(ranks) - 1) / len(ranks) / 1e9 if seconds else None
    return {"gpus": len(ranks), "bytes": size, "bus_gb_s": bus}


class _Rank:
    """A GPU, its buffers and its stream."""

    def __init__(self, cuda: Call, number: int, size: int) -> None:
        self._cuda, self._size = cuda, size
        device = c_int()
        self._context = c_void_p()
        cuda("cuDeviceGet", byref(device), c_int(number))
        # What NCCL uses too, by CUDA's runtime.
        cuda("cuDevicePrimaryCtxRetain", byref(self._context), device)
        self._enter()
        self.send, self.receive = c_uint64(), c_uint64()
        for buffer in (self.send, self.receive):
            cuda("cuMemAlloc_v2", byref(buffer), c_size_t(size))
        (bits,) = struct.unpack("<I", struct.pack("<f", number + 1))
        cuda("cuMemsetD32_v2", self.send, c_uint(bits), c_size_t(size // 4))
        cuda("cuCtxSynchronize")
        self.stream, self.begin, self.end = c_void_p(), c_void_p(), c_void_p()
        cuda("cuStreamCreate", byref(self.stream), c_uint(_NON_BLOCKING))
        for event in (self.begin, self.end):
            cuda("cuEventCreate", byref(event), c_uint(0))

    def mark(self, event: c_void_p) -> None:
        self._enter()
        self._cuda("cuEventRecord", event, self.stream)

    def seconds(self) -> float:
        """From the first mark to the second, which it waits for."""
        self._enter()
        passed = c_float()
        self._cuda("cuEventSynchronize", self.end)
        self._cuda("cuEventElapsedTime", byref(passed), self.begin, self.end)
        return passed.value / 1000

    def result(self) -> bytes:
        self._enter()
        host = ctypes.create_string_buffer(self._size)
        self._cuda("cuMemcpyDtoH_v2", host, self.receive, c_size_t(self._size))
        return host.raw

    def _enter(self) -> None:
        self._cuda("cuCtxSetCurrent", self._context)


def _cuda() -> Call:
    library = ctypes.CDLL("libcuda.so.1")

    def describe(code: int) -> str:
        text = c_char_p()
        library.cuGetErrorString(c_int(code), byref(text))
        return (text.value or b"unknown error").decode()

    return _checked(library, describe)


def _nccl() -> Call:
    library = ctypes.CDLL("libnccl.so.2")
    library.ncclGetErrorString.restype = c_char_p
    return _checked(library, lambda code: str(library.ncclGetErrorString(c_int(code)).decode()))


def _checked(library: ctypes.CDLL, describe: Callable[[int], str]) -> Call:
    def call(function: str, *arguments: Any) -> None:
        code = getattr(library, function)(*arguments)
        if code:
            raise FailedError(f"{function}: {describe(code)}")

    return call


if __name__ == "__main__":
    sys.exit(main())
