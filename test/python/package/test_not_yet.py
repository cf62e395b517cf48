"""What README says is not there yet: asking for it is an error that names it, and never something else without a word."""

import socket

import torch


def test_distributed_training_is_refused(device, run_python):
    assert torch.distributed.is_available()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = f"""
        import torch
        import torch.distributed as dist
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:{port}", rank=0, world_size=1)
        for run in (lambda: dist.all_reduce(torch.ones(3, device="fake")),
                    lambda: torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to("fake"))):
            try:
                run()
                print("it ran")
            except Exception as error:
                print(type(error).__name__, str(error).splitlines()[0])
        dist.destroy_process_group()
    """
    said = run_python(script, TORCH_BACKEND="fake").stdout.splitlines()
    assert len(said) == 2 and all("No backend type associated with device type fake" in line for line in said), said
