"""Each collective of torch.distributed on the device, compared with the same one computed from all ranks' inputs."""

import os

import pytest
import torch
import torch.distributed as dist
from ranks import RANK, SIZE, begin

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGRAL = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
COPIED = (torch.complex64, torch.float8_e4m3fn)
SIZES = (0, 1, 7, 1000, 70001)


def made(rank, size, dtype, seed=0):
    """Returns a rank's input, which every rank can compute."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(size, generator=generator).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 4, (size,), generator=generator).to(dtype)


def place_in_order(x):
    """Returns the place of each number among the numbers of its type, which has 16 bits."""
    bits = x.view(torch.int16).int()
    return torch.where(bits < 0, -32768 - bits, bits)


def same(result, expected, exact=True):
    """`exact`: the same bits. Otherwise sums of 16-bit types are at most one rounding apart."""
    result = result.cpu()
    if not exact and result.dtype in (torch.float16, torch.bfloat16):
        far = (place_in_order(result) - place_in_order(expected)).abs() > 1
        assert result.dtype == expected.dtype and not far.any(), (result[far], expected[far])
    elif exact or not (result.dtype.is_floating_point or result.dtype.is_complex):
        assert result.dtype == expected.dtype and torch.equal(result.view(torch.uint8), expected.view(torch.uint8)), (result, expected)
    else:
        torch.testing.assert_close(result, expected)


def reduced(inputs, op):
    """Returns the reduction in double precision, rounded once."""
    dtype = inputs[0].dtype
    kind = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    wide = torch.stack([x.to(kind) for x in inputs])
    if op == dist.ReduceOp.SUM:
        return wide.sum(0).to(dtype)
    if op == dist.ReduceOp.AVG:
        return wide.mean(0).to(dtype)
    if op == dist.ReduceOp.PRODUCT:
        return wide.prod(0).to(dtype)
    if op == dist.ReduceOp.MAX:
        return wide.amax(0).to(dtype)
    if op == dist.ReduceOp.MIN:
        return wide.amin(0).to(dtype)
    result = wide[0]
    for x in wide[1:]:
        result = {dist.ReduceOp.BAND: result & x, dist.ReduceOp.BOR: result | x, dist.ReduceOp.BXOR: result ^ x}[op]
    return result.to(dtype)


def check_reductions(device):
    real = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
    bits = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
    for dtype in (*FLOATING, *INTEGRAL, torch.complex64):  # of complex numbers torch itself refuses the others
        if dtype == torch.int16 and os.environ.get("TORCH_BACKEND_COLLECTIVES") == "gloo":
            with pytest.raises(NotImplementedError, match="Gloo does not reduce int16; convert the tensor"):
                dist.all_reduce(made(RANK, 7, dtype).to(device))
            continue
        ops = [dist.ReduceOp.SUM] if dtype.is_complex else list(real)
        ops += [dist.ReduceOp.AVG] if dtype.is_floating_point or dtype.is_complex else bits
        for number, op in enumerate(ops):
            for size in SIZES if op == dist.ReduceOp.SUM else (1000,):
                inputs = [made(rank, size, dtype, number) for rank in range(SIZE)]
                x = inputs[RANK].to(device)
                dist.all_reduce(x, op)
                same(x, reduced(inputs, op), exact=False)
                y = inputs[RANK].to(device)
                dist.reduce(y, SIZE - 1, op)
                same(y, reduced(inputs, op) if RANK == SIZE - 1 else inputs[RANK], exact=False)
            whole = [made(rank, SIZE * 33, dtype, number) for rank in range(SIZE)]
            out = torch.empty(33, dtype=dtype, device=device)
            dist.reduce_scatter_tensor(out, whole[RANK].to(device), op)
            same(out, reduced([x[RANK * 33 : RANK * 33 + 33] for x in whole], op), exact=False)


def check_scaled_sums(device):
    for dtype in FLOATING:
        for factor in (0.5, torch.tensor(0.25, device=device)):
            inputs = [made(rank, 100, dtype) for rank in range(SIZE)]
            x = inputs[RANK].to(device)
            dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
            expected = sum(y.double() * float(factor) for y in inputs).to(dtype)
            same(x, expected, exact=False)


def check_copies(device):
    for dtype in FLOATING + INTEGRAL + COPIED:
        for size in SIZES:
            inputs = [made(rank, size, dtype) for rank in range(SIZE)]
            x = inputs[RANK].to(device)
            dist.broadcast(x, 1)
            same(x, inputs[1])
            outputs = [torch.empty(size, dtype=dtype, device=device) for _ in range(SIZE)]
            dist.all_gather(outputs, inputs[RANK].to(device))
            for output, expected in zip(outputs, inputs):
                same(output, expected)
            flat = torch.empty(size * SIZE, dtype=dtype, device=device)
            dist.all_gather_into_tensor(flat, inputs[RANK].to(device))
            same(flat, torch.cat(inputs))
            exchanged = torch.empty(size * SIZE, dtype=dtype, device=device)
            dist.all_to_all_single(exchanged, torch.cat([inputs[RANK]] * SIZE).to(device))
            same(exchanged, torch.cat(inputs))
    for root in range(SIZE):
        inputs = [made(rank, 50, torch.float32, root) for rank in range(SIZE)]
        gathered = [torch.empty(50, device=device) for _ in range(SIZE)] if RANK == root else None
        dist.gather(inputs[RANK].to(device), gathered, root)
        for output, expected in zip(gathered or (), inputs):
            same(output, expected)
        mine = torch.empty(50, device=device)
        dist.scatter(mine, [x.to(device) for x in inputs] if RANK == root else None, root)
        same(mine, inputs[RANK])


def check_uneven(device):
    parts = lambda rank: [made(rank, 3 * rank + other if other != rank else 0, torch.float32, other) for other in range(SIZE)]
    sizes = [[x.numel() for x in parts(rank)] for rank in range(SIZE)]
    received = [sizes[rank][RANK] for rank in range(SIZE)]
    out = torch.empty(sum(received), device=device)
    dist.all_to_all_single(out, torch.cat(parts(RANK)).to(device), received, sizes[RANK])
    same(out, torch.cat([parts(rank)[RANK] for rank in range(SIZE)]))
    outputs = [torch.empty(size, device=device) for size in received]
    dist.all_to_all(outputs, [x.to(device) for x in parts(RANK)])
    for rank, output in enumerate(outputs):
        same(output, parts(rank)[RANK])
    uneven = [made(rank, 5 + rank, torch.float32) for rank in range(SIZE)]
    outputs = [torch.empty_like(x, device=device) for x in uneven]
    dist.all_gather(outputs, uneven[RANK].to(device))
    for output, expected in zip(outputs, uneven):
        same(output, expected)


def check_layouts(device):
    """Views, and memory in other orders."""
    inputs = [made(rank, 600, torch.float32).reshape(20, 30) for rank in range(SIZE)]
    expected = reduced(inputs, dist.ReduceOp.SUM)
    base = torch.zeros(20, 60, device=device)
    view = base[:, ::2]
    view.copy_(inputs[RANK])
    dist.all_reduce(view)
    same(view.contiguous(), expected, exact=False)
    assert base[:, 1::2].abs().sum() == 0
    transposed = inputs[RANK].t().contiguous().t().to(device)
    dist.all_reduce(transposed)
    same(transposed.contiguous(), expected, exact=False)
    part = torch.zeros(700, device=device)
    part[50:650] = inputs[RANK].reshape(-1).to(device)
    dist.all_reduce(part[50:650])
    same(part[50:650].reshape(20, 30), expected, exact=False)
    outputs = [torch.zeros(30, 20, device=device).t() for _ in range(SIZE)]
    dist.all_gather(outputs, transposed)
    for output in outputs:
        same(output.contiguous(), expected, exact=False)


def check_same_bits(device):
    """Every rank has the same bits, and a sum does not depend on the size of its tensor."""
    for dtype in FLOATING:
        x = made(RANK, 70001, dtype).to(device)
        part = x[:1001].clone()
        dist.all_reduce(x)
        dist.all_reduce(part)
        same(part, x[:1001].cpu())
        others = [torch.empty_like(x) for _ in range(SIZE)]
        dist.all_gather(others, x)
        for other in others:
            same(other, x.cpu())


def check_pairs(device):
    following, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for size in (0, 1, 1000, 3000000):
        x, y = made(RANK, size, torch.float32).to(device), torch.empty(size, device=device)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, following), dist.P2POp(dist.irecv, y, before)]):
            work.wait()
        same(y, made(before, size, torch.float32))
        sent, received = dist.isend(x, following, tag=3), dist.irecv(y.zero_(), before, tag=3)  # no bracket
        received.wait()
        sent.wait()
        same(y, made(before, size, torch.float32))


def check_order(device):
    """Results are ordered with the streams that make and use them."""
    side = torch.Stream(device)
    for _ in range(20):
        with side:
            x = torch.full((100000,), 1.0 + RANK, device=device)
            for _ in range(5):
                x = x * 1.0
            work = dist.all_reduce(x, async_op=True)
        assert work.wait()
        total = (x * 2).sum()
        assert total.item() == 2 * 100000 * sum(1 + rank for rank in range(SIZE)), total
    works = [dist.all_reduce(torch.ones(1000, device=device), async_op=True) for _ in range(50)]
    for work in works:
        work.wait()
        assert work.exception() is None and work.result()[0].sum().item() == 1000 * SIZE
    future = dist.all_reduce(torch.ones(10, device=device), async_op=True).get_future().then(lambda done: done.value()[0] * 3)
    assert future.wait().sum().item() == 30 * SIZE


def check_groups_and_objects(device):
    dist.barrier()
    found = [None] * SIZE
    dist.all_gather_object(found, {"rank": RANK})
    assert found == [{"rank": rank} for rank in range(SIZE)]
    group = dist.new_group(list(range(SIZE - 1))) if SIZE > 2 else dist.new_group([0, 1])
    if RANK < max(SIZE - 1, 2):
        x = torch.ones(3, device=device)
        dist.all_reduce(x, group=group)
        assert x.cpu().tolist() == [max(SIZE - 1, 2)] * 3
    host = torch.full((4,), float(RANK))
    dist.all_reduce(host)
    assert host[0].item() == sum(range(SIZE))
    tensors = [torch.full((5,), float(RANK + i), device=device) for i in range(3)]
    with dist._coalescing_manager(device=torch.device(device)):
        for x in tensors:
            dist.all_reduce(x)
    for i, x in enumerate(tensors):
        assert x[0].item() == sum(rank + i for rank in range(SIZE))


def check_refusals(device):
    def refused(kind, words, call):
        try:
            call()
        except kind as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"nothing was raised: {words}")

    refused(NotImplementedError, "AVG", lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32, device=device), dist.ReduceOp.AVG))
    refused(ValueError, "8 elements", lambda: dist.all_gather_into_tensor(torch.empty(8, device=device), torch.empty(3, device=device)))
    refused(Exception, "source", lambda: dist.recv(torch.empty(3, device=device)))
    dist.barrier()


def main():
    device = begin()
    for check in (check_reductions, check_scaled_sums, check_copies, check_uneven, check_layouts, check_same_bits, check_pairs, check_order,
                  check_groups_and_objects, check_refusals):  # fmt: skip
        check(device)
        print("passed", check.__name__, flush=True)
    dist.destroy_process_group()


main()
