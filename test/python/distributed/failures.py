"""What a rank reports when the others do something else, or nothing: the kind of failure is the fourth argument, the rank at fault the fifth (default 1)."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from ranks import RANK, begin
from torch.nn.parallel import DistributedDataParallel

KIND = sys.argv[4]
IS_FAULTY = RANK == (int(sys.argv[5]) if len(sys.argv) > 5 else 1)


def fail():
    """The rank at fault ends, is late by twice the time limit, or is stopped, as by a debugger, until the test resumes it."""
    if KIND.startswith("death"):
        os.kill(os.getpid(), signal.SIGKILL)
    elif KIND.startswith("stop"):
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        time.sleep(6)


def call(device):
    if KIND == "shapes":
        dist.all_reduce(torch.ones(10 + RANK, device=device))
    elif KIND == "types":
        dist.all_reduce(torch.ones(8, dtype=(torch.float32, torch.int32)[RANK], device=device))
    elif KIND == "operators":
        x = torch.ones(8, device=device)
        dist.all_reduce(x) if RANK else dist.broadcast(x, 0)
    elif KIND == "messages":  # the sender of a small message may learn of it at its next call
        x = torch.ones(10 + RANK, dtype=(torch.float32, torch.int32)[RANK], device=device)
        dist.recv(x, 0) if RANK else dist.send(x, 1)
        dist.all_reduce(x)
    elif KIND == "brackets":  # what both ranks call is the same
        with dist._coalescing_manager(device=torch.device(device)):
            for _ in range(3 - RANK):
                dist.broadcast(torch.ones(8, device=device), 0)
        torch.accelerator.synchronize()  # the stream waits for the bracket
    elif KIND == "late":  # a failure after a wait() that has returned
        work = dist.all_reduce(torch.ones(8 + RANK, device=device), async_op=True)
        try:
            work.wait()
            print("wait() has returned")
        except ValueError as error:
            print("wait() has raised", error)
        if RANK == 0:
            torch.accelerator.synchronize()
        dist.barrier()
    elif KIND.startswith("interface"):
        dist.all_reduce(torch.ones(8, device=device))
    elif KIND.startswith(("silence", "death", "stop")):
        fail() if IS_FAULTY else dist.all_reduce(torch.ones(8, device=device))
    elif KIND == "abort":
        time.sleep(4) if RANK else dist.group.WORLD._get_backend(torch.device(device)).abort()
        dist.all_reduce(torch.ones(8, device=device))
    elif KIND == "hook":  # a hook runs out of memory on one rank, whose program ends

        def hook(_, bucket):
            if IS_FAULTY:
                raise torch.OutOfMemoryError("out of memory in the hook")
            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

        model = DistributedDataParallel(torch.nn.Linear(8, 8).to(device))
        model.register_comm_hook(None, hook)
        model(torch.ones(2, 8, device=device)).sum().backward()


if KIND.startswith("interface") and IS_FAULTY:
    os.environ["GLOO_SOCKET_IFNAME"] = "missing0"
device = begin(seconds=30 if KIND == "hook" else 3)
if not KIND.endswith(" in the first call"):
    dist.all_reduce(torch.ones(8, device=device))  # all have joined
begun = time.monotonic()
try:
    call(device)
    if "TORCH_BACKEND_TEST_DEVICES" in os.environ:  # a collective of the plugin's library fails after the call, unless the host waits
        dist.barrier()
except Exception as error:
    print(f"{type(error).__name__} after {time.monotonic() - begun:.1f} s: {error}\nat {time.time():.2f}")
    try:
        torch.accelerator.synchronize()
    except RuntimeError as later:  # a stream that waits for a collective reports the failure, too
        print("the stream:", later)
    assert (torch.ones(3, device=device) + 1).cpu().tolist() == [2.0] * 3  # the device computes on
else:
    print("no error")
print(f"ends at {time.time():.2f}")
sys.stdout.flush()
