"""Unusual arguments of collectives: memory that overlaps or has other strides on other ranks, tensors of two devices, errors inside a bracket, tensors of
inference mode. Each is computed right, or is an error before anything is sent. The group works on."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from ranks import RANK, SIZE, begin

OTHER = 1 - RANK


def value(rank, count):
    return torch.arange(float(count)) % 997 + 1000 * rank


def same(tensor, expected):
    assert torch.equal(tensor.cpu(), expected), (tensor, expected)


def works(device):
    """The group computes on, and no call was left over."""
    x = torch.ones(3, device=device)
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    work.wait()
    same(x, torch.full((3,), 2.0))


def refused(kind, words, call, device):
    try:
        call()
        torch.accelerator.synchronize()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"nothing was raised: {words}")
    works(device)


def check_overlap(device):
    """Results are those of operands in memory of their own, as with Gloo."""
    for count in (4, 400000):
        for start in (0, count // 2, count):
            output = torch.zeros(2 * count, device=device)
            part = output[start : start + count]
            part.copy_(value(RANK, count))
            dist.all_gather_into_tensor(output, part)
            same(output, torch.cat([value(0, count), value(1, count)]))
            whole = value(RANK, 2 * count).to(device)
            part = whole[start : start + count]
            dist.reduce_scatter_tensor(part, whole)
            same(part, (value(0, 2 * count) + value(1, 2 * count))[RANK * count :][:count])
        x = value(RANK, 2 * count).to(device)
        dist.all_to_all_single(x, x)
        same(x, torch.cat([value(rank, 2 * count)[RANK * count :][:count] for rank in range(SIZE)]))


def check_strides_of_one_rank(device):
    """An element belongs to its index, not to its place in memory."""

    def matrix(rank):
        x = value(rank, 6).reshape(2, 3).to(device)
        return x.t().contiguous().t() if rank == 1 else x

    for call, expected in (
        (dist.all_reduce, value(0, 6) + value(1, 6)),
        (lambda x: dist.broadcast(x, 0), value(0, 6)),
        (lambda x: dist.broadcast(x, 1), value(1, 6)),
        (lambda x: dist.reduce(x, 1), value(0, 6) + value(1, 6) if RANK == 1 else value(0, 6)),
    ):
        x = matrix(RANK)
        strides = x.stride()
        call(x)
        same(x.contiguous(), expected.reshape(2, 3))
        assert x.stride() == strides


def check_several_elements_in_one_place(device):
    words = "more than one element of the written-to tensor"
    refused(RuntimeError, words, lambda: dist.all_reduce(torch.ones(1, device=device).expand(4)), device)
    refused(RuntimeError, words, lambda: dist.all_gather_into_tensor(torch.ones(1, device=device).expand(8), torch.ones(4, device=device)), device)
    output = torch.zeros(8, device=device)
    dist.all_gather_into_tensor(output, torch.full((1,), RANK + 1.0, device=device).expand(4))  # it is read only
    same(output, torch.tensor([1.0] * 4 + [2.0] * 4))


def check_devices(device):
    """All tensors of a call are on one device."""
    there = [torch.device("cpu")] + [torch.device(device, 1)] * (torch.accelerator.device_count() > 1)
    here = torch.device(device, 0)
    for other in there:
        ours, theirs = torch.ones(4, device=here), torch.ones(4, device=other)
        long, other_long = torch.ones(8, device=here), torch.ones(8, device=other)

        def bracket(tensors):
            with dist._coalescing_manager(device=here):
                for x in tensors:
                    dist.broadcast(x, 0)

        calls = [
            lambda: dist.all_gather([theirs, theirs.clone()], ours),
            lambda: dist.all_gather([ours.clone(), theirs], ours),
            lambda: dist.all_gather_into_tensor(other_long, ours),
            lambda: dist.reduce_scatter_tensor(theirs, long),
            lambda: dist.reduce_scatter(ours, [ours.clone(), theirs]),
            lambda: dist.all_to_all_single(theirs, ours),
            lambda: dist.all_to_all([ours.clone(), theirs], [ours, ours.clone()]),
            lambda: dist.all_reduce_coalesced([ours, theirs]),
        ]
        calls += [lambda: bracket([ours, theirs])] if other.type == device else []
        for call in calls:
            refused(ValueError, "move all tensors of the call to one device", call, device)


def check_failed_brackets(device):
    """Calls after an error inside a bracket are not added to it."""

    def differ(place):
        with dist._coalescing_manager(device=place):
            dist.all_reduce(torch.ones(2, device=device))
            dist.all_gather_into_tensor(torch.ones(4, device=device), torch.ones(2, device=device))

    def wrong_size(place):
        with dist._coalescing_manager(device=place):
            dist.all_gather_into_tensor(torch.ones(5, device=device), torch.ones(2, device=device))

    def of_the_program(place):
        with dist._coalescing_manager(device=place):
            dist.broadcast(torch.ones(2, device=device), 0)
            raise KeyError("of the program")

    for place in (torch.device(device), None):
        refused(RuntimeError, "mixed types", lambda: differ(place), device)
        refused(ValueError, "5 elements", lambda: wrong_size(place), device)
        if place is not None:
            refused(KeyError, "of the program", lambda: of_the_program(place), device)
    x = torch.ones(2)
    dist.all_reduce(x)
    same(x, torch.full((2,), 2.0))


def check_brackets_of_collectives_and_messages(device):
    """A rank may have messages between the collectives of a bracket, the others after or before them."""
    group = dist.group.WORLD
    for orders in (("csc", "ccr"), ("scc", "crc"), ("csrc", "rccs"), ("ccs", "rcc")):
        sums, parts = [], [torch.full((5,), RANK + 10.0, device=device), torch.zeros(5, device=device)]
        group._start_coalescing(torch.device(device))
        for kind in orders[RANK]:
            if kind == "c":
                sums.append(torch.full((3,), 10.0 ** len(sums) * (RANK + 1), device=device))
                group.allreduce([sums[-1]])
            elif kind == "s":
                group.send(parts[:1], OTHER, 0)
            else:
                group.recv(parts[1:], OTHER, 0)
        group._end_coalescing(torch.device(device)).wait()
        same(torch.stack(sums), torch.tensor([[3.0] * 3, [30.0] * 3]))
        if "r" in orders[RANK]:
            same(parts[1], torch.full((5,), OTHER + 10.0))


def check_brackets_of_cpu_tensors(device):
    """The work of a bracket is done when all of its calls are, also those that Gloo runs."""
    for places in (["cpu"] * 4, [device, "cpu"] * 2, ["cpu", device] * 2):
        received = [torch.zeros(100000, device=place) for place in places]
        sent = [torch.full((100000,), 10.0 * RANK + i, device=place) for i, place in enumerate(places)]
        pairs = [dist.P2POp(dist.irecv, x, OTHER) for x in received] + [dist.P2POp(dist.isend, x, OTHER) for x in sent]
        works = dist.batch_isend_irecv(pairs)
        assert works
        for work in works:
            work.wait()
        torch.accelerator.synchronize()
        assert all(work.is_completed() and work.is_success() and work.exception() is None for work in works)
        for i, x in enumerate(received):
            same(x, torch.full((100000,), 10.0 * OTHER + i))


def check_inference_mode(device):
    """Results that are copied are written by another thread."""
    with torch.inference_mode():
        x = torch.full((4,), RANK + 1.0, device=device)
        outputs = [torch.zeros(4, device=device) for _ in range(SIZE)]
        part = torch.ones(8, device=device)
        works = [dist.all_gather(outputs, x, async_op=True), dist.all_reduce(part[::2], async_op=True)]
        for work in works:
            work.wait()
        dist.all_reduce(part[1:4:2])
        same(torch.cat(outputs), torch.tensor([1.0] * 4 + [2.0] * 4))
        same(part, torch.tensor([2.0, 2, 2, 2, 2, 1, 2, 1]))


def check_gradients(device):
    """Tensors that require gradients are written without a history, also through copies."""
    x = torch.full((4,), RANK + 1.0, device=device, requires_grad=True)
    outputs = [torch.zeros(4, device=device, requires_grad=True) for _ in range(SIZE)]
    transposed = torch.ones(3, 4, device=device).t().requires_grad_()
    dist.all_gather(outputs, x)
    dist.all_reduce(x)
    dist.all_reduce(transposed)
    same(x.detach(), torch.full((4,), 3.0))
    same(torch.cat(outputs).detach(), torch.tensor([1.0] * 4 + [2.0] * 4))
    same(transposed.detach().contiguous(), torch.full((4, 3), 2.0))
    assert all(one.is_leaf and one.requires_grad and one.grad_fn is None for one in (x, transposed, *outputs))


def check_no_dimensions(device):
    x = torch.tensor(RANK + 1.0, device=device)
    outputs = [torch.zeros((), device=device) for _ in range(SIZE)]
    dist.all_gather(outputs, x)
    assert [output.item() for output in outputs] == [1.0, 2.0]
    both = torch.zeros(2, device=device)
    dist.all_gather_into_tensor(both, x)
    same(both, torch.tensor([1.0, 2.0]))
    refused(ValueError, "has no dimensions", lambda: dist.all_to_all_single(torch.zeros((), device=device), x), device)
    dist.all_reduce(x)
    assert x.item() == 3.0


def check_tag_that_is_not_sent(device):
    """The error names both tags. Gloo waits for the receiver of a message, and does not know what the other rank does."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    x, over_gloo, text = torch.ones(3, device=device), os.environ.get("TORCH_BACKEND_COLLECTIVES") == "gloo", ""
    try:
        dist.send(x, 1, group, tag=4) if RANK == 0 else dist.recv(x, 0, group, tag=5)
        torch.accelerator.synchronize()
    except RuntimeError as error:
        text = str(error)
    dist.barrier()
    if RANK == 1 or over_gloo:
        assert ("3 elements, from rank 0, tag 5)" if RANK else "3 elements, to rank 1, tag 4)") in text, text
    if not over_gloo:
        assert text == "" if RANK == 0 else "(float32, 3 elements, rank 1, tag 4)" in text, text
    dist.destroy_process_group(group)


def check_types_without_reductions(device):
    for dtype, name in ((torch.uint16, "uint16"), (torch.float8_e4m3fn, "float8_e4m3fn")):
        x = torch.full((3,), RANK + 1.0).to(dtype).to(device)
        refused(NotImplementedError, f"reduction SUM (0) of {name} is not supported; ", lambda: dist.all_reduce(x), device)
        dist.broadcast(x, 1)
        same(x.float(), torch.full((3,), 2.0))


def check_timeouts_that_are_not_positive(device):
    for seconds in (0, -1):
        refused(ValueError, f"timeout of a process group: {seconds} s", lambda: dist.new_group(timeout=timedelta(seconds=seconds)), device)


def check_cpu_tensor_on_one_rank(device):
    group = dist.new_group(timeout=timedelta(seconds=1))
    x = torch.ones(3, device=device if RANK == 0 else "cpu")
    words = "did not join" if RANK == 0 else "rank 1 of 2 cannot connect to the other ranks for a collective of CPU tensors"
    try:
        dist.all_reduce(x, group=group)
        torch.accelerator.synchronize()
    except RuntimeError as error:
        assert words in str(error) or os.environ.get("TORCH_BACKEND_COLLECTIVES") == "gloo" and RANK == 0, error
    else:
        raise AssertionError("no error")
    dist.barrier()
    dist.destroy_process_group(group)


def main():
    device = begin()
    checks = [check for name, check in globals().items() if name.startswith("check_")]
    for check in checks:
        check(device)
        works(device)
        print("passed", check.__name__, flush=True)
    dist.destroy_process_group()


main()
