"""A tensor that cannot be sent to another process raises an error in the sending process immediately, and never blocks
forever. test_tensor_sharing.py tests tensors that can be sent."""

import collections
import dataclasses
import multiprocessing
import os
import subprocess
import sys
import threading

import pytest
import torch


@dataclasses.dataclass
class Sample:
    inputs: torch.Tensor
    label: int


class Slots:
    __slots__ = ("inner",)

    def __init__(self, inner):
        self.inner = inner


class Hidden:
    """Holds its tensor where only pickle finds it, and catches exceptions."""

    def __init__(self, inner):
        self.inner = inner

    def __reduce__(self):
        try:
            return Hidden, (self.inner,)
        except Exception:
            return Hidden, (None,)


Point = collections.namedtuple("Point", "x y")


def holders(x):
    return {
        "tensor": x, "view": x[1:], "list": [1, [2, (x,)]], "dict": {"a": {"b": x}}, "named": Point(1, x),
        "dataclass": Sample(x, 3), "slots": Slots(x), "hidden": Hidden(x), "packed": torch.nn.utils.rnn.pack_sequence([x]), "key": {Point(1, 2): [x]},
    }  # fmt: skip


NAMES = ["tensor", "view", "list", "dict", "named", "dataclass", "slots", "hidden", "packed", "key"]


def sender(kind):
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Pipe()[1] if kind == "Pipe" else getattr(context, kind)()
    return queue, queue.send if kind == "Pipe" else queue.put


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["Queue", "JoinableQueue", "SimpleQueue", "Pipe"])
def test_sending_what_depends_on_a_leaf_is_an_error_that_names_the_cure(device, kind, name):
    value = holders(torch.arange(3.0, device=device, requires_grad=True) * 2)[name]
    queue, put = sender(kind)
    with pytest.raises(RuntimeError, match=r"Cowardly refusing to serialize non-leaf tensor.*detach\(\)"):
        put(value)
    queue.close()


@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue", "Pipe"])
def test_sending_memory_of_a_graph_is_an_error_that_names_the_cure(device, kind):
    graph = torch.accelerator.Graph()
    static = torch.ones(4, device=device)
    with torch.Stream(device=device):
        graph.capture_begin()
        inside = static * 2
        graph.capture_end()
    queue, put = sender(kind)
    for value in (inside, [inside[1:]], torch.nn.Parameter(inside), inside.untyped_storage()):
        with pytest.raises(RuntimeError, match=rf"memory of device {device}:0 .* cannot be sent .* private memory pool.*clone"):
            put(value)
    queue.close()


def test_pythons_own_queues_too(device):
    queue = multiprocessing.get_context("fork").Queue()
    with pytest.raises(RuntimeError, match="Cowardly"):
        queue.put([torch.ones(2, device=device, requires_grad=True) * 2])
    queue.put([torch.ones(2), "text"])
    assert queue.get(timeout=30)[1] == "text"
    queue.close()


def test_what_is_no_tensor_of_the_device_goes_through_as_before(device):
    """Includes objects that multiprocessing sends specially, and large objects: each is sent once."""
    made = torch.ones(1, device=device)
    context = multiprocessing.get_context("fork")
    queue, (left, right) = context.Queue(), context.Pipe()
    queue.put({"tensor": torch.arange(4), "parameter": torch.nn.Parameter(torch.ones(2)), "bytes": b"x" * (1 << 20), "end": right, "class": Sample})
    got = queue.get(timeout=30)
    got["end"].send(5)
    assert left.recv() == 5 and got["tensor"].tolist() == [0, 1, 2, 3] and len(got["bytes"]) == 1 << 20 and got["class"] is Sample
    assert made.item() == 1
    queue.close()


def test_what_cannot_be_pickled_is_reported_by_the_queue_as_before(device, capfd):
    made = torch.ones(1, device=device)
    queue = multiprocessing.get_context("fork").Queue()
    queue.put(threading.Lock())
    queue.put("next")
    assert queue.get(timeout=30) == "next" and made.item() == 1
    assert "cannot pickle" in capfd.readouterr().err
    queue.close()


LOADER = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Map(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.ones(2, device="fake", requires_grad=True) * index

class Stream(IterableDataset):
    def __iter__(self):
        return iter([torch.ones(2, device="fake", requires_grad=True) * 2])

def collate(batch):
    return {"x": [part.to("fake").requires_grad_() * 2 for part in batch]}

class Host(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.ones(2) * index

if __name__ == "__main__":
    cases = (Stream(), {"collate_fn": list}), (Host(), {"collate_fn": collate}), (Map(), {"collate_fn": list}), (Map(), {"batch_size": None})
    for data, options in cases[int(sys.argv[1]):int(sys.argv[2])]:
        try:
            next(iter(DataLoader(data, **{"batch_size": 2, "num_workers": 1, "multiprocessing_context": "spawn", **options})))
            print("it ran")
        except RuntimeError as error:
            print(" ".join(str(error).split()))
    print(sum(batch.sum().item() for batch in DataLoader(Host(), batch_size=2, num_workers=1, multiprocessing_context="spawn")))
"""


@pytest.mark.parametrize("cases", [(0, 2), pytest.param((2, 4), marks=pytest.mark.slow)], ids=["stream and host", "map"])
def test_what_a_worker_cannot_send_is_an_error_of_the_loop(tmp_path, cases):
    program = tmp_path / "program.py"
    program.write_text(LOADER)
    done = subprocess.run([sys.executable, program, *map(str, cases)], env={**os.environ, "TORCH_BACKEND": "fake"}, capture_output=True, text=True, timeout=300)
    *refused, total = done.stdout.splitlines()
    assert len(refused) == 2 and total == "12.0", done.stdout + done.stderr
    assert all("Caught RuntimeError in DataLoader worker process" in line and "Cowardly refusing" in line for line in refused)


def test_arguments_of_a_process(device):
    process = torch.multiprocessing.get_context("spawn").Process(target=print, args=(torch.ones(2, device=device, requires_grad=True) * 2,))
    with pytest.raises(RuntimeError, match="Cowardly"):
        process.start()


def test_the_device_type_lazy(run_python):
    run_python(
        """
        import torch, torch_backend
        torch_backend.lazy.device.enable()
        queue = torch.multiprocessing.get_context("spawn").Queue()
        try:
            queue.put(torch.ones(2, device="lazy"))
            raise SystemExit("it was put")
        except RuntimeError as error:
            assert "a tensor on 'lazy:0' cannot be sent" in str(error), error
        """,
        TORCH_BACKEND="fake",
    )
