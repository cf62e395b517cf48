"""What the programs of this folder share: they run as one rank each."""

import datetime
import os
import sys
from pathlib import Path

import stores
import torch
import torch.distributed as dist

RANK, SIZE, RENDEZVOUS = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


def begin(backend=None, seconds=60, **options):
    """Joins the group that `backend` names, as users write it. Returns the device."""
    device = torch.accelerator.current_accelerator().type
    if "TORCH_BACKEND_TEST_DEVICES" in os.environ:  # collectives libraries want a device for each rank
        torch.accelerator.set_device_index(RANK)
    served = "TORCH_BACKEND_TEST_TCP_STORE" in os.environ  # rank 0 serves the store, instead of a file
    place = {"store": stores.tcp(RANK, Path(RENDEZVOUS), seconds)} if served else {"init_method": f"file://{RENDEZVOUS}"}
    dist.init_process_group(
        backend, **place, rank=RANK, world_size=SIZE, timeout=datetime.timedelta(seconds=seconds), **options
    )
    return device
