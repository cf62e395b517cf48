"""The log of the last collectives: dump() writes it, first_difference() compares the logs of all ranks.

torch's analyzer can also read the files: `torchfrtrace --prefix rank_ <folder>`.
"""

from __future__ import annotations

import os
import pathlib
import pickle
import signal
import tempfile

from .._extension import extension

_FOLDER = "TORCH_BACKEND_COLLECTIVES_LOG"
_SIGNAL = "TORCH_BACKEND_COLLECTIVES_LOG_SIGNAL"
_PREFIX = "rank_"


def _entries() -> int:
    """Returns the capacity of the log in collectives. The format of the setting is that of torch's flight recorder."""
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        text = os.environ.get(name)
        if text:
            if not text.isdigit():
                raise ValueError(f"{name} is '{text}'; expected a number of collectives, 0 for no log")
            return int(text)
    return 2000


def _signal() -> int:
    """Returns the number of the signal that triggers the writing of the log, 0 for none."""
    text = os.environ.get(_SIGNAL, "")
    if not text:
        return 0
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    if name not in signal.Signals.__members__:
        raise ValueError(f"{_SIGNAL} is '{text}'; expected the name of a signal, such as USR2")
    if not os.environ.get(_FOLDER):
        raise ValueError(f"{_SIGNAL} is set and {_FOLDER} is not; name the folder that the log is written to")
    return signal.Signals[name]


def configure(rank: int) -> int:
    """Sets the size of the log, the file that this process writes when a group fails, and the signal that triggers the
    writing. Returns the size.
    """
    folder = os.environ.get(_FOLDER, "")
    if folder:
        os.makedirs(folder, exist_ok=True)
    entries = _entries()
    extension().configure_collectives_log(entries, os.path.join(folder, f"{_PREFIX}{rank}") if folder else "", _signal())
    return entries


def dump(folder: str | os.PathLike | None = None) -> dict:
    """Returns the log of the last collectives of this process. If `folder` is given, also writes it to its file
    `rank_<n>`.

    The keys are those of torch's flight recorder: `entries` has a dictionary for each collective, oldest first, with
    its group, number, shapes, state, times and Python stack. The environment variable TORCH_BACKEND_COLLECTIVES_LOG
    names a folder. Every rank writes its log to it when a group fails, and when it receives the signal
    TORCH_BACKEND_COLLECTIVES_LOG_SIGNAL.
    """
    if folder is not None:
        import torch

        os.makedirs(folder, exist_ok=True)
        file = os.path.join(folder, f"{_PREFIX}{torch.distributed.get_rank()}")
        extension().write_collectives_log(file)
        return _read(file)
    with tempfile.TemporaryDirectory() as temporary:
        file = os.path.join(temporary, "log")
        extension().write_collectives_log(file)
        return _read(file)


def _read(file) -> dict:
    with open(file, "rb") as stream:
        return pickle.load(stream)


def read_all(folder: str | os.PathLike) -> dict[int, dict]:
    """Returns the logs of a folder by rank. Raises FileNotFoundError if there is none."""
    logs = {int(path.name[len(_PREFIX) :]): _read(path) for path in sorted(pathlib.Path(folder).glob(f"{_PREFIX}*")) if path.name[len(_PREFIX) :].isdigit()}
    if not logs:
        raise FileNotFoundError(f"no file '{_PREFIX}<rank>' in '{folder}'; torch_backend.distributed.dump(folder) writes them")
    return logs


def _call(entry: dict) -> tuple:
    return entry["profiling_name"].partition(":")[2], entry["input_sizes"], entry["input_dtypes"]


def described(entry: dict) -> str:
    """Returns the call of a collective with the dtypes and sizes of its inputs, as text."""
    name, sizes, types = _call(entry)
    return f"{name}({', '.join(f'{kind}{size}' for kind, size in zip(types, sizes))})"


def _text(entry: dict | None) -> str:
    if entry is None:
        return "did not call it"
    place = next((f" at {frame['filename']}:{frame['line']}" for frame in entry["frames"] if "torch/distributed" not in frame["filename"]), "")
    return f"{described(entry)}, {entry['state']}{place}"


def first_difference(folder: str | os.PathLike) -> str | None:
    """Returns a text about the first collective of each group in which ranks differ, or None. `folder` has the files of
    dump().

    Collectives whose inputs may differ between ranks (all_to_all, scatter) are compared by name.
    """
    logs = read_all(folder)
    calls: dict = {}  # by group and number, then by rank
    members: dict = {}
    oldest: dict = {}
    for rank, log in logs.items():
        for name, group in log["pg_config"].items():
            members[name, group["ranks"]] = [int(number) for number in group["ranks"].strip("[]").split(",")]
        for entry in log["entries"]:
            if entry["is_p2p"]:
                continue
            key = entry["process_group"][0], log["pg_config"][entry["process_group"][0]]["ranks"]
            calls.setdefault((key, entry["collective_seq_id"]), {})[rank] = entry
            oldest[key, rank] = min(oldest.get((key, rank), entry["collective_seq_id"]), entry["collective_seq_id"])
    found = {}
    for (key, number), by_rank in sorted(calls.items(), key=lambda item: item[0]):
        ranks = [rank for rank in members[key] if rank in logs and number >= oldest.get((key, rank), 0)]
        compared = {_comparable(by_rank[rank]) if rank in by_rank else None for rank in ranks}
        if len(compared) > 1 and key not in found:
            description = next(iter(by_rank.values()))["process_group"][1]
            lines = [f"  rank {rank}: {_text(by_rank.get(rank))}" for rank in ranks]
            found[key] = f"collective #{number} of group '{key[0]}' ({description}):\n" + "\n".join(lines)
    return "\n".join(found.values()) or None


def _comparable(entry: dict) -> str:
    name, sizes, types = _call(entry)
    return name if name in ("all_to_all", "scatter", "coalesced") else repr((name, sizes, types))
