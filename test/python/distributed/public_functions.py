"""Every public name of torch.distributed and of its symmetric memory with a group of the device: it works, or raises an error that names the
function and what to use instead. A name that the table lacks fails."""

import inspect
import os
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
from ranks import RANK, SIZE, begin
from torch.distributed import distributed_c10d
from torch.distributed.fsdp import fully_shard

OTHER = 1 - RANK
SUM = 3.0  # of the ranks' values 1 and 2


def value(device, shape=(4,)):
    return torch.full(shape, RANK + 1.0, device=device)


def parts(device):
    return [torch.empty(4, device=device) for _ in range(SIZE)]


def holds(tensor, *expected):
    assert tensor.cpu().flatten().tolist() == [one for one in expected for _ in range(tensor.numel() // len(expected))], tensor


def refused(words, call, kind=NotImplementedError):
    try:
        call()
    except kind as error:
        assert words in str(error) and ";" in str(error), error  # what failed; what to use
    else:
        raise AssertionError(f"{words}: accepted")


def all_gather(device):
    outputs = parts(device)
    dist.all_gather(outputs, value(device))
    holds(torch.cat(outputs), 1, 2)


def all_gather_coalesced(device):
    outputs = [parts(device), parts(device)]
    dist.all_gather_coalesced(outputs, [value(device), value(device) * 2])
    holds(torch.cat([one for row in outputs for one in row]), 1, 2, 2, 4)


def gathered_into_one(name):
    def call(device):
        output = torch.empty(8, device=device)
        getattr(dist, name)(output, value(device))
        holds(output, 1, 2)

    return call


def all_reduce(device):
    x = value(device)
    dist.all_reduce(x)
    holds(x, SUM)
    sparse = torch.diag(torch.tensor([0.0, RANK, RANK + 1.0])).to_sparse().to(device)
    work = dist.all_reduce(sparse, async_op=True)
    work.wait()
    assert sparse.is_sparse and sparse.to_dense().cpu().diag().tolist() == [0, 1, SUM]
    assert work.get_future().wait()[0].to_dense().cpu().diag().tolist() == [0, 1, SUM]
    refused("sparse", lambda: dist.broadcast(sparse, 0))


def all_reduce_coalesced(device):
    tensors = [value(device), value(device, (2, 3))]
    dist.all_reduce_coalesced(tensors)
    for one in tensors:
        holds(one, SUM)


def all_to_all(device):
    outputs = parts(device)
    dist.all_to_all(outputs, [value(device) * 10, value(device)])
    holds(torch.cat(outputs), *((10, 20) if RANK == 0 else (1, 2)))


def all_to_all_single(device):
    output = torch.empty(8, device=device)
    dist.all_to_all_single(output, torch.cat([value(device) * 10, value(device)]))
    holds(output, *((10, 20) if RANK == 0 else (1, 2)))


def batch_isend_irecv(device):
    received = torch.empty(4, device=device)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, value(device), OTHER), dist.P2POp(dist.irecv, received, OTHER)]):
        work.wait()
    holds(received, OTHER + 1)


def broadcast(device):
    x = value(device)
    dist.broadcast(x, 1)
    holds(x, 2)


def object_lists(device):
    found = [None] * SIZE
    dist.all_gather_object(found, RANK)
    assert found == [0, 1]
    given = [RANK]
    dist.broadcast_object_list(given, 1)
    assert given == [1]
    gathered = [None] * SIZE if RANK == 0 else None
    dist.gather_object(RANK, gathered, 0)
    assert RANK or gathered == [0, 1]
    mine = [None]
    dist.scatter_object_list(mine, [10, 11] if RANK == 0 else None, 0)
    assert mine == [10 + RANK]
    if RANK == 0:
        dist.send_object_list(["sent"], 1)
    else:
        dist.recv_object_list(mine, 0)
        assert mine == ["sent"]


def gather(device):
    outputs = parts(device) if RANK == 0 else None
    dist.gather(value(device), outputs, 0)
    if RANK == 0:
        holds(torch.cat(outputs), 1, 2)


def gather_single(device):
    output = torch.empty(8, device=device) if RANK == 0 else None
    dist.gather_single(value(device), output, 0)
    if RANK == 0:
        holds(output, 1, 2)


def gather_into_tensor(device):
    output = torch.empty(8, device=device) if RANK == 0 else None
    dist.gather_into_tensor(value(device), output, 0)
    if RANK == 0:
        holds(output, 1, 2)


def scatter(device):
    output = torch.empty(4, device=device)
    dist.scatter(output, [value(device), value(device) * 5] if RANK == 0 else None, 0)
    holds(output, 1 if RANK == 0 else 5)


def reduce(device):
    x = value(device)
    dist.reduce(x, 0)
    holds(x, SUM if RANK == 0 else 2)


def reduce_scatter(device):
    output = torch.empty(4, device=device)
    dist.reduce_scatter(output, [value(device), value(device) * 10])
    holds(output, SUM if RANK == 0 else 10 * SUM)


def scattered_from_one(name):
    def call(device):
        output = torch.empty(4, device=device)
        getattr(dist, name)(output, torch.cat([value(device), value(device) * 10]))
        holds(output, SUM if RANK == 0 else 10 * SUM)

    return call


def messages(device):
    received = torch.empty(4, device=device)
    if RANK == 0:
        dist.send(value(device), 1)
        dist.recv(received, 1)
    else:
        dist.recv(received, 0)
        dist.send(value(device), 0)
    holds(received, OTHER + 1)
    sent, arrived = dist.isend(value(device), OTHER), dist.irecv(received, OTHER)
    arrived.wait()
    sent.wait()
    holds(received, OTHER + 1)
    refused("without a source", lambda: dist.recv(received))


def barrier(device):
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=30))


def groups(device):
    assert torch.accelerator.device_count() == 2  # as many ranks has a group of new_subgroups()
    for group in (dist.new_group([0, 1]), dist.new_subgroups(2)[0], dist.new_subgroups()[0], dist.new_subgroups_by_enumeration([[0, 1]])[0]):
        x = value(device)
        dist.all_reduce(x, group=group)
        holds(x, SUM)
        assert dist.get_world_size(group) == 2 and dist.get_rank(group) == RANK
        assert dist.get_group_rank(group, RANK) == RANK == dist.get_global_rank(group, RANK)
        assert dist.get_process_group_ranks(group) == [0, 1]
        dist.destroy_process_group(group)
    assert dist.get_pg_count() >= 1


def split_group(device):
    part = dist.split_group(split_ranks=[[0], [1]])
    x = value(device)
    dist.all_reduce(x, group=part)
    holds(x, RANK + 1)


def queries(device):
    assert dist.is_initialized() and dist.is_available() and dist.is_gloo_available()
    assert dist.get_rank() == RANK and dist.get_world_size() == SIZE
    assert "torch_backend" in dist.get_backend_config() and dist.get_backend() in ("torch_backend", device, "custom")
    assert dist.is_backend_available("torch_backend") and dist.get_default_backend_for_device(device) == "torch_backend"
    assert dist.get_node_local_rank(fallback_rank=RANK) == RANK
    if hasattr(dist, "get_backend_impl"):
        assert dist.get_backend_impl(device=torch.device(device)) is not None
    for name in ("is_mpi_available", "is_nccl_available", "is_ucc_available", "is_xccl_available", "is_torchelastic_launched"):
        assert getattr(dist, name)() in (True, False)


def supports_complex(device):
    assert dist.distributed_c10d.supports_complex(dist.ReduceOp.SUM)
    x = torch.full((3,), complex(RANK, 1), device=device)
    dist.all_reduce(x)
    assert x.cpu().tolist() == [1 + 2j] * 3


def set_timeout_of_torch_2_13(device):
    """Which dist.breakpoint calls, and training libraries, with each torch."""
    group = dist.new_group()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        distributed_c10d._set_pg_timeout(timedelta(seconds=80), group)
    assert group._get_backend(torch.device(device)).options._timeout == timedelta(seconds=80)
    dist.destroy_process_group(group)


def differentiable(device):
    """torch.distributed.nn.functional: results and gradients, of the sum of the ranks' squared results."""
    from torch.distributed.nn import functional

    x = value(device, (2, 2)).requires_grad_()
    gathered = functional._all_gather_base(torch.empty(4, 2, device=device), x)
    holds(gathered.detach(), 1, 2)
    (gathered.square().sum() * (RANK + 1)).backward()
    holds(x.grad, 2 * (RANK + 1) * SUM)  # both ranks have the whole result


def set_timeout(device):
    group = dist.new_group()
    dist.set_timeout(timedelta(seconds=90), group)
    assert group._get_backend(torch.device(device)).options._timeout == timedelta(seconds=90)
    dist.destroy_process_group(group)


WORKS = {
    "all_gather": all_gather, "all_gather_coalesced": all_gather_coalesced, "all_gather_single": gathered_into_one("all_gather_single"),
    "all_gather_into_tensor": gathered_into_one("all_gather_into_tensor"), "all_reduce": all_reduce, "all_reduce_coalesced": all_reduce_coalesced,
    "all_to_all": all_to_all, "all_to_all_single": all_to_all_single, "batch_isend_irecv": batch_isend_irecv, "broadcast": broadcast,
    "gather": gather, "gather_single": gather_single, "gather_into_tensor": gather_into_tensor, "scatter": scatter, "reduce": reduce,
    "reduce_scatter": reduce_scatter, "reduce_scatter_single": scattered_from_one("reduce_scatter_single"),
    "reduce_scatter_tensor": scattered_from_one("reduce_scatter_tensor"), "split_group": split_group, "supports_complex": supports_complex,
    "set_timeout": set_timeout,
    **dict.fromkeys(("send", "recv", "isend", "irecv"), messages),
    **dict.fromkeys(("barrier", "monitored_barrier"), barrier),
    **dict.fromkeys(("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list", "send_object_list", "recv_object_list"), object_lists),
    **dict.fromkeys(("new_group", "new_subgroups", "new_subgroups_by_enumeration", "destroy_process_group", "get_group_rank", "get_global_rank",
                     "get_process_group_ranks", "get_pg_count"), groups),
    **dict.fromkeys(("get_rank", "get_world_size", "get_backend", "get_backend_config", "get_backend_impl", "get_default_backend_for_device",
                     "get_node_local_rank", "is_initialized", "is_available", "is_backend_available", "is_gloo_available", "is_mpi_available",
                     "is_nccl_available", "is_ucc_available", "is_xccl_available", "is_torchelastic_launched"), queries),
}  # fmt: skip
# Tested by other programs of this folder, or of no group.
ELSEWHERE = {
    "init_process_group": "spellings.py", "shrink_group": "groups.py", "init_device_mesh": "programs.py", "record_comm": "a context of torch's own log",
    "get_debug_level": "a setting of torch", "breakpoint": "a debugger", "register_rendezvous_handler": "of stores", "rendezvous": "of stores",
}  # fmt: skip


def symmetric_functions(device):
    """Of symmetric memory: those that allocate or map memory are refused, the others do not need the device."""
    x, name = torch.ones(4, device=device), dist.group.WORLD.group_name
    words = f"symmetric memory is not supported on the device type '{device}'"
    memory = {
        "empty": lambda: symmetric.empty(4, device=device),
        "rendezvous": lambda: symmetric.rendezvous(x, dist.group.WORLD),
        "get_mempool_allocator": lambda: symmetric.get_mempool_allocator(device),
        "get_mem_pool": lambda: symmetric.get_mem_pool(torch.device(device)),
        "get_symm_mem_workspace": lambda: symmetric.get_symm_mem_workspace(name, 1024),
    }
    for call in memory.values():
        refused(words, call)
    sharded = fully_shard(torch.nn.Linear(2, 2).to(device))
    if hasattr(sharded, "set_symm_mem_for_comm"):
        refused(words, sharded.set_symm_mem_for_comm)
    with_handle = {"put_signal", "wait_signal", "get", "reduce_scatter_offset", "all_to_all_nd"}  # of memory that is refused
    of_triton = {"reduce_partials", "triton_reduce_partials_first_dim"}
    symmetric.enable_symm_mem_for_group(name)
    # since torch 2.15: whether the device has an allocator of such memory
    assert symmetric.is_symm_mem_enabled_for_group(name) == (torch.__version__ < (2, 15)) and not symmetric.is_symm_mem_tensor(x)
    assert symmetric.get_backend(device) is None
    symmetric.set_signal_pad_size(symmetric.get_signal_pad_size())
    assert symmetric.is_nvshmem_available() in (True, False)
    for unknown in ("CUDA", "torch_backend"):
        try:
            symmetric.set_backend(unknown)
        except RuntimeError as error:
            assert unknown in str(error), error
    assert symmetric.restride_A_for_fused_matmul_reduce_scatter(torch.ones(4, 4, device=device), 0).shape == (4, 4)
    matrix = torch.ones(4, 4, device=device)
    for operator, call in (
        ("one_shot_all_reduce", lambda: torch.ops.symm_mem.one_shot_all_reduce(x, "sum", name)),
        ("fused_all_gather_matmul", lambda: torch.ops.symm_mem.fused_all_gather_matmul(matrix, [matrix], 0, name)),
    ):
        try:
            call()
        except NotImplementedError as error:
            assert operator in str(error) and "use the collectives of torch.distributed" in str(error), error
        else:
            raise AssertionError(operator)
    return {*memory, *with_handle, *of_triton, "enable_symm_mem_for_group", "is_symm_mem_enabled_for_group", "is_symm_mem_tensor", "get_backend", "set_backend",
            "set_signal_pad_size", "get_signal_pad_size", "is_nvshmem_available", "make_contiguous_for_perm",
            "restride_A_shard_for_fused_all_gather_matmul", "restride_A_for_fused_matmul_reduce_scatter"}  # fmt: skip


def functions_of(module, names):
    return {name for name in names if name != "reduce_op" and inspect.isroutine(getattr(module, name, None))}


def main():
    index = RANK if "TORCH_BACKEND_TEST_DEVICES" in os.environ else 0
    device = begin(device_id=torch.device(torch.accelerator.current_accelerator().type, index))
    public = functions_of(distributed_c10d, distributed_c10d.__all__) | functions_of(dist, [name for name in vars(dist) if not name.startswith("_")])
    public = {name for name in public if getattr(getattr(dist, name, getattr(distributed_c10d, name, None)), "__module__", "").startswith("torch.distributed")
              or hasattr(getattr(dist, name, None), "__wrapped__")}  # fmt: skip
    unknown = public - set(WORKS) - set(ELSEWHERE)
    assert not unknown, f"not in the table: {sorted(unknown)}"
    present = [name for name in WORKS if hasattr(dist, name) or hasattr(distributed_c10d, name)]
    done = set()
    for name in present:
        if WORKS[name] not in done:  # one check may be of several names
            WORKS[name](device)
            done.add(WORKS[name])
            print("passed", WORKS[name].__name__, name, flush=True)
    assert len(present) > 50, present
    for check in (set_timeout_of_torch_2_13, differentiable):
        check(device)
        print("passed", check.__name__, flush=True)
    known = symmetric_functions(device)
    functions = {name for name, one in vars(symmetric).items()
                 if not name.startswith("_") and inspect.isroutine(one) and one.__module__ == symmetric.__name__}  # fmt: skip
    assert not functions - known, f"not in the table: {sorted(functions - known)}"
    print(f"passed: {len(present)} functions of torch.distributed, {len(functions)} of symmetric memory")
    dist.destroy_process_group()


main()
