"""The source of PyTorch's own tests with other names: the device module for torch.cuda, the device type for "cuda", and the backend's name where a
group is created. Nothing of the tests is copied here."""

import functools
import importlib.util
import re
from pathlib import Path

COMMON = "torch.testing._internal.common_distributed"
TESTS = "torch.testing._internal.distributed.distributed_test"

_RULES = [
    (r"from torch\.cuda\.amp import autocast, GradScaler", "from torch.amp import GradScaler\nfrom upstream_device import autocast"),
    (r"^import torch\.cuda(\.nccl)?$", "import upstream_device"),
    (r"torch\.cuda\.", "upstream_device."),
    (r"\.cuda\(", ".{device}("),
    (r"\.is_cuda\b", ".is_{device}"),
    (r'"cuda(:?)', r'"{device}\1'),
    (r"backend_str = BACKEND\.lower\(\)", 'backend_str = "torch_backend"'),
    (r"backend=BACKEND", 'backend="torch_backend"'),
    (r"backend=dist\.Backend\.NCCL", 'backend="torch_backend"'),
    (r'backend="nccl"', 'backend="torch_backend"'),
    (r"ProfilerActivity\.CUDA", "ProfilerActivity.PrivateUse1"),
    (r"DeviceType\.CUDA", "DeviceType.PrivateUse1"),
    (r'\["WORLD_SIZE"\]\) < 8\b', '["WORLD_SIZE"]) < 3'),  # skip_if_small_worldsize, which skips everywhere
    # test_ddp_uneven_inputs: images of 1,000 x 1,000 elements and convolutions of 256 channels take a CPU an hour.
    (r"dim = 1000(\n +batch = 1\n +# Create a variety of models)", r"dim = 100\1"),
    (r"\b(dist|c10d)\.is_nccl_available\(\)", "True"),
    (r"torch\.testing\._internal\.common_distributed", "upstream_common_distributed"),
]


@functools.cache
def compiled(original, device):
    """Returns (file, code) of a module of torch with the names of a device type."""
    spec = importlib.util.find_spec(original)
    source = Path(spec.origin).read_text()
    for pattern, text in _RULES:
        source = re.sub(pattern, text.replace("{device}", device), source, flags=re.MULTILINE)
    return spec.origin, compile(source, spec.origin, "exec")
