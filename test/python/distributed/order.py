"""Sequence numbers, timeouts and hooks, as torch's users see them: two ranks."""

import json
import os
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from ranks import RANK, SIZE, begin


LIBRARY = os.environ.get("TORCH_BACKEND_COLLECTIVES") == "plugin"


def backend_of(device, group=None):
    return (group or dist.group.WORLD)._get_backend(torch.device(device))


def check_sequence_numbers(device):
    group = dist.new_group()
    backend = backend_of(device, group)
    number = backend._get_sequence_number_for_group
    assert number() == 0
    x = torch.ones(4, device=device)
    dist.all_reduce(x, group=group)
    assert number() == 1
    with dist._coalescing_manager(group, device=torch.device(device)):
        for _ in range(3):
            dist.all_reduce(x, group=group)
    assert number() == 2
    (dist.send if RANK == 0 else dist.recv)(x, 1 - RANK, group=group)
    assert number() == 2
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1 - RANK, group), dist.P2POp(dist.irecv, x.clone(), 1 - RANK, group)]):
        work.wait()
    assert number() == 2
    dist.barrier(group)
    assert number() == 3
    try:
        dist.all_gather_into_tensor(torch.empty(5, device=device), x, group=group)
    except ValueError:
        pass
    assert number() == 3  # of a call that was refused there is none
    backend._set_sequence_number_for_group()
    assert number() == 3


def within(seconds, kind, call):
    """Calls a function, which has to fail in time. A wait of a stream fails when the stream is synchronized."""
    begun = time.monotonic()
    try:
        call()
        torch.accelerator.synchronize()
    except kind as error:
        took = time.monotonic() - begun
        assert took < seconds, (took, error)
        return str(error)
    raise AssertionError("no error")


def check_timeouts(device):
    """Rank 1 is silent: each call of rank 0, with the synchronization after it, ends in time. A failed group is followed by a new one."""
    x = torch.ones(8, device=device)
    y = torch.ones(8)

    def bracket(group):
        with dist._coalescing_manager(group, device=torch.device(device)):
            dist.all_reduce(x, group=group)

    def pairs(group):
        for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, 1, group)]):
            work.wait()

    calls = {
        "all_reduce": lambda group: dist.all_reduce(x, group=group),
        "wait": lambda group: dist.all_reduce(x, group=group, async_op=True).wait(timedelta(seconds=1)),
        "coalesced": bracket,
        "recv": lambda group: dist.recv(x, 1, group=group),
        "batch_isend_irecv": pairs,
        "barrier": lambda group: dist.barrier(group),
        "wait_tensor": lambda group: torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce(x, "sum", group.group_name)),
        "monitored_barrier": lambda group: dist.monitored_barrier(group, timeout=timedelta(seconds=1)),
        "destroy": lambda group: end_in_flight(x, group),
    }
    for name, call in calls.items():
        group = dist.new_group(timeout=timedelta(seconds=1))
        dist.all_reduce(x, group=group)
        dist.all_reduce(y, group=group)
        if RANK == 0:
            message = within(3.5, RuntimeError, lambda: call(group))
            print(name, ":", message.splitlines()[0][:160], flush=True)
        dist.barrier()
        if name != "destroy" or RANK:
            dist.destroy_process_group(group)
    group = dist.new_group(timeout=timedelta(seconds=1))
    if RANK == 0:
        within(3.5, RuntimeError, lambda: dist.all_reduce(x, group=group))  # the first collective connects the ranks
    dist.barrier()
    dist.destroy_process_group(group)


def check_creation(device):
    """A rank that does not create a group ends the creation on the others at the timeout, and then its own."""
    if RANK:
        time.sleep(4)
    message = within(3.5, RuntimeError, lambda: dist.new_group(timeout=timedelta(seconds=1)))
    assert RANK or "rank 1 of 2 did not join" in message, message
    dist.barrier()


def end_in_flight(x, group):
    """Destroys a group while a collective waits for the other rank. The work has failed afterwards."""
    work = dist.all_reduce(x, group=group, async_op=True)
    dist.destroy_process_group(group)
    work.wait(timedelta(seconds=1))


def check_abort(device):
    """abort() on a thread ends a wait on another one, of both ranks. The device computes on, and a new group works."""
    group = dist.new_group()
    x = torch.ones(8, device=device)
    dist.all_reduce(x, group=group)
    failed, ended = [], []

    def wait():
        try:
            dist.all_reduce(x, group=group, async_op=True).wait(timedelta(seconds=40))
        except RuntimeError as error:
            failed.append(str(error))
        ended.append(time.monotonic())

    waiting = threading.Thread(target=wait)
    if RANK == 0:
        waiting.start()
        time.sleep(0.5)
        begun = time.monotonic()
        backend_of(device, group).abort()
        waiting.join(10)
        assert ended and ended[0] - begun < 1 and time.monotonic() - begun < 1 and "abort" in failed[0], (begun, ended, failed)
    dist.barrier()
    if RANK == 1 and not LIBRARY:  # a library may have what rank 0 has sent before
        message = within(3, RuntimeError, lambda: dist.all_reduce(x, group=group, async_op=True).wait(timedelta(seconds=40)))
        assert "abort" in message, message
    assert (torch.ones(3, device=device) + 1).cpu().tolist() == [2.0] * 3
    dist.destroy_process_group(group)
    again = dist.new_group()
    y = torch.ones(3, device=device)
    dist.all_reduce(y, group=again)
    assert y.cpu().tolist() == [SIZE] * 3
    dist.destroy_process_group(again)


def check_other_timeouts(device):
    """set_timeout, and a timeout that is longer for a while."""
    group = dist.new_group()
    backend, x = backend_of(device, group), torch.ones(8, device=device)
    dist.all_reduce(x, group=group)
    backend.set_timeout(timedelta(seconds=1))
    dist.distributed_c10d._add_ephemeral_timeout_for_all_pgs(timedelta(seconds=30))
    work = dist.all_reduce(x, group=group, async_op=True) if RANK == 0 else time.sleep(2)
    work = work or dist.all_reduce(x, group=group, async_op=True)
    work.wait()  # rank 1 came after the timeout, within its extension
    torch.accelerator.synchronize()
    dist.barrier()
    if RANK == 0:
        within(3.5, RuntimeError, lambda: dist.all_reduce(x, group=group))  # the extension is over
    dist.barrier()
    dist.destroy_process_group(group)


def check_hooks(device):
    group = dist.new_group()
    backend, x = backend_of(device, group), torch.ones(8, device=device)
    infos, aborted = [], []
    if hasattr(group, "_register_on_completion_hook"):
        group._enable_collectives_timing()
        group._register_on_completion_hook(infos.append)
        assert group._has_hooks()
    backend.register_abort_hook(7, lambda: aborted.append(threading.get_ident()))
    backend.register_abort_hook(8, lambda: aborted.append("removed"))
    backend.unregister_abort_hook(8)
    for _ in range(3):
        work = dist.all_reduce(x, group=group, async_op=True)
        work.wait()
    group._wait_for_pending_works()
    assert [info.seq for info in infos] == [1, 2, 3], infos
    assert all(info.time_finished >= info.time_started for info in infos)
    assert work._get_duration() > 0
    assert not aborted
    assert str(backend.get_error()).endswith("SUCCESS")
    dist.barrier()
    if RANK == 0:
        backend.abort()
    try:
        dist.all_reduce(x, group=group)
        group._wait_for_pending_works()
    except RuntimeError as error:
        assert "abort" in str(error), error
    else:
        raise AssertionError("no error")
    assert aborted and "removed" not in aborted
    assert not str(backend.get_error()).endswith("SUCCESS")
    dist.destroy_process_group(group)


def check_profile(device):
    """A trace has a row for each collective, under the operator that called it."""
    from torch.profiler import ProfilerActivity, profile

    x, y = torch.ones(1000, device=device), torch.empty(SIZE, 4, dtype=torch.bfloat16, device=device)
    part = y[RANK].clone()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as result:
        dist.all_reduce(x)
        dist.all_gather_into_tensor(y, part)
        torch.accelerator.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        result.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(f"{folder}/trace.json").read_text())["traceEvents"]
    rows = {event["name"]: event["args"] for event in events if "Collective name" in event.get("args", {})}
    assert sorted(rows) == ["all_gather", "all_reduce"], rows
    annotations = {event.name: event.is_async for event in result.events() if event.name.startswith("torch_backend:")}
    assert annotations == {"torch_backend:all_reduce": True, "torch_backend:_all_gather_base": True}, annotations
    reduced, gathered = rows["all_reduce"], rows["all_gather"]
    assert reduced["bytes"] == 4000 and gathered["bytes"] == 2 * 4 * SIZE, rows
    assert reduced["Group size"] == SIZE and gathered["Seq"] == reduced["Seq"] + 1, rows
    if not LIBRARY:  # of its rows there may be copies between devices
        copies = {event["name"] for event in events if event.get("cat") == "gpu_memcpy"}
        if os.environ.get("HAL_FAKE_PROTECT") == "1":  # ranks copy to and from memory that they share
            copies = {name for name in copies if "DtoD" not in name}
        assert not copies, "operands or results were copied"
    launches = [event for event in events if event.get("name") == f"{device}LaunchCollective"]
    assert {launch["args"]["correlation"] for launch in launches} == {row["correlation"] for row in rows.values()}, launches
    operators = {event["args"]["External id"]: event["name"] for event in events if event.get("cat") == "cpu_op"}
    assert operators[reduced["External id"]] == "c10d::allreduce_", (operators, reduced)


def check_enqueue(device):
    """Rank 1 comes late: rank 0 queues collectives, waits of its stream and work after them, and is not blocked."""
    tensors = [torch.zeros(1000, device=device) for _ in range(8)]
    for is_measured in (False, True):  # kernels are compiled at their first use
        torch.accelerator.synchronize()
        dist.barrier()
        if RANK == 1 and is_measured:
            time.sleep(2)
        begun = time.monotonic()
        for x in tensors:
            dist.all_reduce(x, async_op=True).wait()
            x.add_(1)
        seconds = time.monotonic() - begun
    assert RANK or seconds < 1.5, f"the host was blocked for {seconds:.2f} s"
    assert [x.unique().tolist() for x in tensors] == [[SIZE + 1.0]] * 8


def check_monitored_barrier(device):
    dist.monitored_barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=20), wait_all_ranks=True)


def check_refused_by_name(device):
    """Whatever c10d::Backend has and the device has not is an error that names it and what to use."""
    backend, x = backend_of(device), torch.ones(4, device=device)
    calls = {
        "allocate_tensor": lambda: backend.allocate_tensor(4, dtype=torch.float32, device=x.device),
        "mem_allocator": lambda: backend.mem_allocator,
        "memory_stats": lambda: backend.memory_stats(),
        "suspend": lambda: backend.suspend(),
        "resume": lambda: backend.resume(),
        "recv_anysource": lambda: backend.recv_anysource([x], 0),
    }
    used = {"name", "rank", "size", "options", "shrink", "abort", "shutdown", "set_timeout", "eager_connect_single_device", "barrier", "monitored_barrier",
            "broadcast", "allreduce", "allreduce_coalesced", "reduce", "allgather", "allgather_coalesced", "gather", "scatter", "reduce_scatter", "alltoall",
            "alltoall_base", "send", "recv", "Options", "setUsePgForSymmMemRendezvous", "perform_nocolor_split", "comm_split_count", "get_error",
            "register_abort_hook", "unregister_abort_hook",
            # of torch 2.14 and 2.15
            "all_gather_single", "all_gather_single_coalesced", "all_to_all_single", "allreduce_sparse", "bound_device_id", "gather_into_tensor",
            "gather_single", "merge", "reduce_scatter_single", "reduce_scatter_single_coalesced", "split"}  # fmt: skip
    later = {"reconfigure": (), "get_reconfigure_handle": (), "new_window": ()}
    names = {name for name in dir(backend) if not name.startswith(("_", "supports_"))}
    for name, arguments in later.items():
        if name in names and name != "reconfigure":
            calls[name] = lambda name=name: getattr(backend, name)(*arguments)
    for name, call in calls.items():
        if name not in names:
            continue
        try:
            call()
        except NotImplementedError as error:
            text = str(error).splitlines()[0]
            assert ";" in text and ("torch_backend" in text or "source" in text), text
        else:
            raise AssertionError(f"{name} ran")
    assert not backend.supports_tensor_alloc(x.device)
    unknown = names - used - set(calls) - set(later)
    assert not unknown, f"not in the table: {sorted(unknown)}"
    outputs = [[torch.empty(3, device=device)] for _ in range(SIZE)]
    backend.allgather_coalesced(outputs, [torch.full((3,), float(RANK), device=device)]).wait()
    assert [output[0][0].item() for output in outputs] == list(range(SIZE))


def check_first_barrier(device):
    """A barrier does not choose the device of the group: that of the first tensor is."""
    group = dist.new_group()
    for number in (1, 2):
        dist.barrier(group)
        assert backend_of(device, group)._get_sequence_number_for_group() == number
    x = torch.full((4,), RANK + 1.0, device=torch.device(device, RANK % torch.accelerator.device_count()))
    dist.all_reduce(x, group=group)
    assert x.cpu().tolist() == [3.0] * 4
    dist.barrier(group)
    dist.destroy_process_group(group)
    unused = dist.new_group()
    dist.barrier(unused, async_op=True).wait()
    dist.destroy_process_group(unused)
    silent = dist.new_group(timeout=timedelta(seconds=1))
    dist.barrier(silent)
    if RANK == 0:
        message = within(3.5, RuntimeError, lambda: dist.barrier(silent))
        assert "barrier" in message and "rank 1" in message, message
    dist.barrier()
    dist.destroy_process_group(silent)


def check_callbacks(device):
    """A thread that waits may run the collective. Callbacks do not see its modes, nor copies of results its gradients."""
    found = []

    def note(future):
        found.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
        return future.value()[0] * 2

    store = dist.distributed_c10d._get_default_store()
    dist.all_reduce(torch.ones(1, device=device))  # the first collective of tensors connects the ranks
    for i in range(30):
        if RANK:
            store.wait([f"callback {i}"])  # rank 0 has it before the result
        with torch.inference_mode():
            work = dist.all_reduce(torch.ones(8, device=device), async_op=True)
            doubled = work.get_future().then(note)
            if RANK == 0:
                store.set(f"callback {i}", "")
            work.wait()
        assert doubled.wait().tolist() == [2.0 * SIZE] * 8
    # The plugin's library has a work as soon as it is submitted: its callbacks run at once, on this thread.
    assert RANK or LIBRARY or found == [(False, True)] * 30, found
    work = dist.all_reduce(torch.ones(8, device=device), async_op=True)
    work.wait()
    assert work.get_future().wait()[0].tolist() == [float(SIZE)] * 8  # of a work that has ended
    assert work.get_future().then(lambda future: future.value()[0] + 1).wait().tolist() == [SIZE + 1.0] * 8
    parts = [torch.empty(4, 3, device=device).t() for _ in range(SIZE)]  # copied from memory in another order
    with torch.no_grad():
        dist.all_gather(parts, torch.full((3, 4), float(RANK), device=device))
    assert [part.unique().tolist() for part in parts] == [[float(rank)] for rank in range(SIZE)]


def main():
    device = begin()
    checks = (check_sequence_numbers, check_first_barrier, check_callbacks, check_hooks, check_profile, check_monitored_barrier, check_refused_by_name,
              check_other_timeouts, check_timeouts)  # fmt: skip
    if "timeouts" in sys.argv:
        checks = (check_timeouts,)
    elif "others" in sys.argv:
        checks = checks[:-1]
    if "all" in sys.argv:
        checks += (check_enqueue, check_abort, check_creation)
    if LIBRARY:  # its collectives are not refused by name, and its first barrier chooses a device
        checks = [check for check in checks if check not in (check_first_barrier, check_refused_by_name)]
    for check in checks:
        check(device)
        print("passed", check.__name__, flush=True)
    dist.destroy_process_group()


main()
