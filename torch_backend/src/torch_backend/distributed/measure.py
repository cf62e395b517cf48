"""Measures collectives between processes: ``python -P -m torch_backend.distributed.measure``, one process for each
rank, started by `torch-backend comm bench` or torchrun. Rank 0 prints the rows as JSON.

The time of a row is the median of its repetitions; the time of a repetition is that of its slowest rank. The rates
are those of nccl-tests: algorithm bandwidth = bytes of the message / time; bus bandwidth = bytes that each rank must
send, independent of the algorithm, / time.
"""

from __future__ import annotations

import argparse
import datetime
import faulthandler
import json
import os
import statistics
import sys
import time

from .model import OPERATORS

# Factors of the algorithm bandwidth for `n` ranks.
_BUS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
}
SMALL = 1 << 16  # bytes up to which a repetition is ten calls


def add_arguments(parser) -> None:
    """Declares the options that the command and the ranks share."""
    parser.add_argument("--op", nargs="+", choices=OPERATORS, default=["all_reduce"], help="operators; default all_reduce")
    parser.add_argument("--bytes", nargs="+", type=size, default=[1 << 10, 1 << 16, 1 << 20, 1 << 26], metavar="SIZE",
                        help="sizes of the message, as 64K or 1M; of all_gather the result, of reduce_scatter and all_to_all the input")  # fmt: skip
    parser.add_argument("--dtype", default="float32", help="data type of the elements; default float32")
    parser.add_argument("--device", help="device type; default that of the active plugin; cpu measures Gloo")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each row; default 1")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="time after which ranks that make no progress are ended; default 120")


def size(text: str) -> int:
    """Returns the bytes of a size such as "64K", "1M" or "2G". Raises ArgumentTypeError."""
    units = {"K": 10, "M": 20, "G": 30}
    digits, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 0)
    if not digits.isascii() or not digits.isdigit() or not 0 < int(digits) << unit < 1 << 40:
        raise argparse.ArgumentTypeError(f"invalid size {text!r}; write bytes, or 64K, 1M, 2G, less than 1 TiB")
    return int(digits) << unit


def dtype_of(name: str):
    """Returns torch's data type of that name. Raises ValueError."""
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no data type {name!r}")
    return dtype


def call(operator: str, sent, result, group=None) -> None:
    """Calls a collective of torch.distributed. For all_reduce, and broadcast with root 0, `sent` is also the result."""
    import torch.distributed as dist

    if operator == "all_reduce":
        dist.all_reduce(sent, group=group)
    elif operator == "broadcast":
        dist.broadcast(sent, 0, group=group)
    elif operator == "all_gather":
        (getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor)(result, sent, group=group)
    elif operator == "reduce_scatter":
        (getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor)(result, sent, group=group)
    else:
        dist.all_to_all_single(result, sent, group=group)


class _Row:
    """One operator at one size: its tensors, the call, and the expected result. All elements of rank r are r + 1."""

    def __init__(self, operator: str, count: int, dtype, device: str, rank: int, ranks: int):
        import torch

        self.operator, self.rank, self.ranks = operator, rank, ranks
        part = count // ranks
        self.sent = torch.full(((part if operator == "all_gather" else count),), rank + 1, dtype=dtype, device=device)
        results = {"reduce_scatter": part, "all_gather": part * ranks, "all_to_all": count}
        self.result = torch.zeros(results[operator], dtype=dtype, device=device) if operator in results else self.sent

    def call(self) -> None:
        call(self.operator, self.sent, self.result)

    def wrong(self) -> int:
        """Makes one call from fresh values and returns the number of elements of the result that differ from the
        expected ones.
        """
        import torch

        self.sent.fill_(self.rank + 1)
        self.call()
        numbers = torch.arange(1, self.ranks + 1, dtype=torch.float64)
        total = torch.full((self.result.numel(),), numbers.sum().item(), dtype=torch.float64)
        if self.operator == "broadcast":
            total.fill_(1)
        elif self.operator in ("all_gather", "all_to_all"):
            total = numbers.repeat_interleave(self.result.numel() // self.ranks)
        return int((self.result.cpu().to(torch.float64) != total).sum())


class _Progress:
    """A file with what this rank does, which `torch-backend comm` reads if the ranks do not end."""

    def __init__(self, path: str | None):
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY) if path else -1

    def write(self, text: str) -> None:
        if self._file >= 0:
            os.pwrite(self._file, text.ljust(80).encode()[:80], 0)


def _time(row: _Row, message: int, seconds: float, synchronize, progress: _Progress) -> tuple[float, int]:
    """Returns the seconds of a call, and the number of repetitions."""
    import torch
    import torch.distributed as dist

    calls = 10 if message <= SMALL else 1
    row.call()  # the first use of memory is not measured
    times, end = [], time.perf_counter() + seconds
    on = torch.ones(1)
    while on.item():
        progress.write(f"{row.operator} of {message} bytes, repetition {len(times) + 1}")
        row.sent.fill_(0)  # sums in place would grow
        synchronize()
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            row.call()
        synchronize()
        passed = torch.tensor([(time.perf_counter() - begin) / calls], dtype=torch.float64)
        dist.all_reduce(passed, dist.ReduceOp.MAX)
        times.append(passed.item())
        on.fill_(float(time.perf_counter() < end and len(times) < 10_000 or len(times) < 3))
        dist.broadcast(on, 0)
    return statistics.median(times), len(times)


def measure(arguments, progress: _Progress = _Progress(None)) -> list[dict]:
    """Measures every row in the default process group. Returns a list of dictionaries: operator, bytes, dtype, ranks, seconds, repetitions,
    algorithm_bandwidth and bus_bandwidth in bytes per second, wrong elements."""
    import torch
    import torch.distributed as dist

    dtype, device = dtype_of(arguments.dtype), arguments.device
    synchronize = torch.accelerator.synchronize if device != "cpu" else lambda: None
    rank, ranks, rows = dist.get_rank(), dist.get_world_size(), []
    for operator in arguments.op:
        for message in arguments.bytes:
            count = max(1, message // dtype.itemsize // ranks) * ranks
            row = _Row(operator, count, dtype, device, rank, ranks)
            taken, repetitions = _time(row, message, arguments.seconds, synchronize, progress)
            wrong = torch.tensor([row.wrong()])
            dist.all_reduce(wrong)
            moved = count * dtype.itemsize
            rows.append({"operator": operator, "bytes": moved, "dtype": arguments.dtype, "ranks": ranks, "seconds": taken,
                         "repetitions": repetitions, "algorithm_bandwidth": moved / taken,
                         "bus_bandwidth": moved / taken * _BUS[operator](ranks), "wrong": int(wrong)})  # fmt: skip
    return rows


def main() -> int:
    """Joins the group of torchrun's variables, measures, and prints the rows on rank 0. Returns 1 if a result was wrong."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parser.add_argument("--store", help="file through which the ranks find each other; default: MASTER_ADDR and MASTER_PORT")
    parser.add_argument("--progress", help="file for what this rank does")
    arguments = parser.parse_args()
    faulthandler.enable()  # SIGABRT prints the stacks
    progress = _Progress(arguments.progress)
    progress.write("import of torch")
    import torch
    import torch.distributed as dist

    accelerator = torch.accelerator.current_accelerator()
    arguments.device = arguments.device or (accelerator.type if accelerator else "cpu")
    if arguments.device != "cpu":
        torch.accelerator.set_device_index(int(os.environ.get("LOCAL_RANK", "0")) % torch.accelerator.device_count())
    progress.write("init_process_group")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = {"init_method": f"file://{arguments.store}", "rank": rank, "world_size": ranks} if arguments.store else {}
    dist.init_process_group("gloo" if arguments.device == "cpu" else None, timeout=datetime.timedelta(seconds=arguments.timeout), **place)
    try:
        rows = measure(arguments, progress)
        progress.write("destroy_process_group")
    finally:
        dist.destroy_process_group()
    progress.write("end of the program")
    if rank == 0:
        json.dump(rows, sys.stdout)
    return 1 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
