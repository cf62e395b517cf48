"""Scenarios of test_tensor_sharing.py: `sharing.py NAMES START_METHOD`. Another process replies with the data that it
received; CPU tensors sent in the same way are the reference."""

import gc
import os
import signal
import sys
import time
import warnings

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

KIND = os.environ.get("SHARING_KIND", "fake")
TIMEOUT = 60


def facts(x):
    """Returns the properties of a tensor that another process observes, except its device."""
    if x.layout != torch.strided:
        return [str(x.layout), tuple(x.shape), x.to_dense().tolist()]
    return [type(x).__name__, tuple(x.shape), x.stride(), x.storage_offset(), x.dtype, x.requires_grad, x.is_leaf, x.detach().cpu().tolist(), x.untyped_storage().nbytes()]


def serve(inbox, outbox):
    """Replies with (what, tensors) until None arrives."""
    held = []
    while (message := inbox.get(timeout=TIMEOUT)) is not None:
        what, value = message
        del message
        try:
            if what == "facts":
                answer = [facts(x) for x in value]
            elif what == "storages":
                answer = len({x.untyped_storage().data_ptr() for x in value}), len({x.untyped_storage()._cdata for x in value})
            elif what == "add":
                value.add_(1)
                torch.accelerator.synchronize()
                answer = None
            elif what == "hold":
                held.append(value)
                answer = value.sum().item()
            elif what == "drop":
                held.clear()
                answer = None
            elif what == "sum":
                answer = value.sum().item()
            elif what == "wait":
                value.wait()
                torch.accelerator.synchronize()
                answer = type(value).__name__
            elif what == "make":
                answer = torch.arange(float(value), device=KIND)
            elif what == "send back":
                outbox.put(value)
                answer = "it was put"
            elif what == "send back a copy":
                answer = value.clone()
            elif what == "resize":
                value.resize_(1 << 20)
                answer = "it was resized"
        except Exception as error:
            answer = f"{type(error).__name__}: {' '.join(str(error).split())}"
        del value
        outbox.put(answer)
        del answer


class Peer:
    one = None  # for scenarios that do not end it

    @classmethod
    def of(cls, context):
        cls.one = cls.one or cls(context)
        return cls.one

    def __init__(self, context):
        self.context = context
        self.inbox, self.outbox = context.Queue(), context.Queue()
        self.process = context.Process(target=serve, args=(self.inbox, self.outbox), daemon=True)
        self.process.start()

    def ask(self, what, value):
        self.inbox.put((what, value))
        return self.outbox.get(timeout=TIMEOUT)

    def end(self):
        self.inbox.put(None)
        self.process.join(TIMEOUT)
        assert self.process.exitcode == 0, self.process.exitcode


def module():
    return getattr(torch, KIND)


def wait_for(condition, what):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def refused(function, *words):
    try:
        function()
    except Exception as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError(f"it was not refused: {words}")


def trip(context):
    """Views, dtypes, parameters, and tensor metadata must arrive like those of CPU tensors."""
    peer = Peer.of(context)
    base = torch.arange(60.0).reshape(3, 4, 5)
    hosts = [
        base, base[1:], base[:, 1:3, ::2], base.permute(2, 0, 1), base[0, 0, 0], torch.empty(0), torch.empty(3, 0), torch.nn.Parameter(base.clone()),
        torch.nn.Parameter(torch.arange(3), requires_grad=False), base.clone().requires_grad_(), base.to_sparse(), base.expand(2, 3, 4, 5), base.detach()[2],
        *(torch.ones(7).to(kind) for kind in (torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.int64, torch.bool, torch.complex64)),
    ]  # fmt: skip

    def there(x):
        """The same tensor on the device: a view of the same offset in a separate storage."""
        if x.layout != torch.strided or not x.numel() or type(x) is torch.nn.Parameter or x.requires_grad:
            return x.detach().to(KIND).requires_grad_(x.requires_grad) if type(x) is not torch.nn.Parameter else torch.nn.Parameter(x.detach().to(KIND), x.requires_grad)
        whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage()).to(KIND)
        return whole.as_strided(x.size(), x.stride(), x.storage_offset())

    devices = [there(x) for x in hosts]
    for a, b in zip(peer.ask("facts", hosts), peer.ask("facts", devices)):
        assert a == b, (a, b)
    host, device = base.clone(), base.to(KIND)
    for value in ((host[0], host, host[1:, 2]), (device[0], device, device[1:, 2])):
        assert peer.ask("storages", value) == (1, 1), "views of one storage"
    one = torch.ones(1 << 19, device=KIND)[5:9]
    peer.ask("add", one)
    assert one.tolist() == [2.0] * 4, "the memory is shared"


def rules(context):
    """Rejected operations and their errors."""
    peer = Peer.of(context)
    x = torch.ones(8, device=KIND)
    answer = peer.ask("send back", x)
    assert "RuntimeError" in answer and "received it from another one" in answer and "clone" in answer, answer
    assert peer.ask("send back a copy", x).tolist() == [1.0] * 8
    answer = peer.ask("resize", x)
    assert "not resizable" in answer, answer
    leaf = torch.ones(2, device=KIND, requires_grad=True)
    refused(lambda: peer.inbox.put(("sum", leaf * 2)), "Cowardly refusing to serialize non-leaf tensor", "detach()")
    graph, static = torch.accelerator.Graph(), torch.ones(4, device=KIND)
    stream = torch.Stream(device=KIND)
    with stream:
        graph.capture_begin()
        inside = static * 2
        graph.capture_end()
    graph.replay()
    refused(lambda: peer.inbox.put(("sum", inside)), "private memory pool", "clone")
    assert peer.ask("sum", inside.clone()) == 8.0
    message = mp.reductions.ForkingPickler.dumps(torch.ones(4, device=KIND)).tobytes() if hasattr(mp.reductions, "ForkingPickler") else None
    if message is not None:
        import pickle

        first = pickle.loads(message)
        assert first.sum().item() == 4.0
        del first
        torch.accelerator.synchronize()
        refused(lambda: pickle.loads(message), "opened before")
    import torch_backend

    with torch_backend.lazy.record():
        later = torch.ones(16, device=KIND) * 3 + 1
        assert peer.ask("sum", later) == 64.0
    queue = context.Queue()
    own = torch.arange(4.0, device=KIND)
    queue.put(own)
    back = queue.get(timeout=TIMEOUT)
    assert back.tolist() == own.tolist() and back.data_ptr() == own.data_ptr(), "the process that sent it"
    storage = torch.arange(4, dtype=torch.uint8, device=KIND).untyped_storage()
    queue.put(storage)
    assert list(queue.get(timeout=TIMEOUT).cpu()) == [0, 1, 2, 3]


def order(context):
    """The receiver's stream waits for the sender's work on any stream; events; freed memory is reused."""
    peer = Peer.of(context)
    peer.ask("sum", torch.ones(1, device=KIND))
    for stream in (None, torch.Stream(device=KIND)):
        x = torch.zeros(1000, device=KIND)
        torch.accelerator.synchronize()
        with stream or module().stream(None):
            module()._sleep(300_000_000)
            x.fill_(3)
            assert peer.ask("sum", x) == 3000.0, "the sender's work came first"
    torch.accelerator.synchronize()
    event = module().Event(interprocess=True)
    module()._sleep(200_000_000)
    event.record()
    assert peer.ask("wait", event) == "Event" and event.query()


def exits(context):
    """Processes that exit normally and by a signal."""
    import torch_backend

    peer = Peer(context)
    received = peer.ask("make", 5)
    second = peer.ask("make", 7)
    peer.end()  # the producer exits first
    assert received.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0] and second.sum().item() == 21.0
    received += 1
    assert received.sum().item() == 15.0
    gc.collect()
    wait_for(lambda: not torch_backend._C.collect_shared(), "released by the receivers of other scenarios")
    before = module().memory_allocated()
    peer = Peer(context)
    for size in (10, 1 << 20, 1 << 21):
        peer.ask("hold", torch.ones(size, device=KIND))
    assert module().memory_allocated() >= before + 3 * (1 << 20) * 4
    module().ipc_collect()
    assert module().memory_allocated() >= before + 3 * (1 << 20) * 4, "the receiver holds it"
    peer.ask("drop", None)
    wait_for(lambda: not torch_backend._C.collect_shared(), "released by the receiver")
    assert module().memory_allocated() == before
    peer.ask("hold", torch.ones(1 << 20, device=KIND))
    os.kill(peer.process.pid, signal.SIGKILL)
    peer.process.join(TIMEOUT)
    module().ipc_collect()
    assert module().memory_allocated() == before, "the receiver was killed"
    peer = Peer(context)
    peer.inbox.put(("make", 1 << 10))
    wait_for(lambda: not peer.outbox.empty(), "the reply")
    os.kill(peer.process.pid, signal.SIGKILL)
    peer.process.join(TIMEOUT)
    refused(lambda: peer.outbox.get(timeout=TIMEOUT), f"memory of process {peer.process.pid} cannot be opened", "has ended")
    assert torch.ones(3, device=KIND).sum().item() == 3.0


class Numbers(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.full((3,), float(index), device=KIND)


def spawned(rank, x, queue):
    x += rank + 1
    queue.put(x.sum().item())


def loaders(context):
    """DataLoader's workers, mp.spawn, pipes and simple queues."""
    loader = DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context=context, persistent_workers=True)
    for _ in range(2):
        batches = list(loader)
        assert [batch[:, 0].tolist() for batch in batches] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]] and batches[0].device.type == KIND
    del loader
    x, queue = torch.zeros(2, device=KIND), context.SimpleQueue()
    mp.start_processes(spawned, args=(x, queue), nprocs=1, start_method=context.get_start_method())
    assert queue.get() == 2.0 and x.tolist() == [1.0, 1.0]
    left, right = context.Pipe()
    left.send({"x": x, "n": 1})
    assert right.recv()["x"].tolist() == [1.0, 1.0]
    queue.put(x)
    assert queue.get().tolist() == [1.0, 1.0]


def copies(context):
    """A plugin that cannot share memory: data is copied through host memory, with one warning."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        peer = Peer.of(context)
        base = torch.arange(24.0).reshape(4, 6)
        for host in (base, base[1:, 2:], base.t()):
            device = base.to(KIND).as_strided(host.size(), host.stride(), host.storage_offset())
            for a, b in zip(peer.ask("facts", [host]), peer.ask("facts", [device])):
                assert a == b, (a, b)
        x = base.to(KIND)
        assert peer.ask("storages", (x[0], x, x[1:, 2])) == (1, 1)
        peer.ask("add", x)
        assert x[0, 0].item() == 0.0, "a copy"
        assert peer.ask("send back", x).tolist() == base.tolist()
        assert peer.outbox.get(timeout=TIMEOUT) == "it was put"
        notes = [str(note.message) for note in notes if "does not share memory between processes" in str(note.message)]
    assert len(notes) == 1, notes


def many(context):
    """10,000 sends: memory and files must not grow."""
    import torch_backend

    peer = Peer.of(context)

    def files(process):
        return len(os.listdir(f"/proc/{process}/fd"))

    def resident(process):
        with open(f"/proc/{process}/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    for index in range(10_500):
        if index == 500:
            before = [f(p) for f in (files, resident) for p in (os.getpid(), peer.process.pid)]
            used = module().memory_allocated(), module().memory_reserved()
        assert peer.ask("sum", torch.full((5000,), float(index % 7), device=KIND)) == 5000.0 * (index % 7)
    wait_for(lambda: not torch_backend._C.collect_shared(), "all released")
    after = [f(p) for f in (files, resident) for p in (os.getpid(), peer.process.pid)]
    assert module().memory_allocated() <= used[0] and module().memory_reserved() <= used[1]
    assert after[0] <= before[0] + 4 and after[1] <= before[1] + 4, (before, after)
    assert after[2] < before[2] + (16 << 20) and after[3] < before[3] + (16 << 20), (before, after)


if __name__ == "__main__":
    for scenario in sys.argv[1].split(","):
        globals()[scenario](mp.get_context(sys.argv[2]))
        print("done", scenario)
    if Peer.one:
        Peer.one.end()
