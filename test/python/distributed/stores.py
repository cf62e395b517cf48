"""The store of a group in programs whose rank 0 serves it over TCP, as torchrun and most programs do."""

import datetime
import time

import torch.distributed as dist


def tcp(rank, file, seconds):
    """Returns the group's store. Its port is the system's choice; the other ranks read it in `file`."""
    timeout = datetime.timedelta(seconds=seconds)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timeout, wait_for_workers=False)
        new = file.with_suffix(".new")
        new.write_text(str(store.port))
        new.rename(file)
        return store
    until = time.monotonic() + seconds
    while not file.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"rank 0 has not started the store within {seconds} s")
        time.sleep(0.01)
    return dist.TCPStore("127.0.0.1", int(file.read_text()), is_master=False, timeout=timeout, wait_for_workers=False)
