"""An asynchronous failure is reported once, with the operator. Settings are per process, so the program is a process."""

import os
import subprocess
import sys

PROGRAM = """
import torch
import torch_backend

torch_backend.use("fake")
x = torch.ones(1000, device="fake")
try:
    for _ in range(10):
        x = x + 1
    torch.fake.synchronize()
except RuntimeError as error:
    print("reported:", str(error).splitlines()[0])
print("after it:", (torch.ones(3, device="fake") * 2).tolist())
"""


def test_a_failed_kernel_is_reported_and_the_device_remains_usable():
    settings = {**os.environ, "HAL_FAKE_FAULT": "3"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=settings, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "reported:" in done.stdout and "add" in done.stdout
    assert "after it: [2.0, 2.0, 2.0]" in done.stdout
