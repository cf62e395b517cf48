"""AOTInductor on devices that compile source: the package contains kernels in the portable dialect, and the host does
not access device memory (HAL_OPENCL_MEMORY=buffer: an address is not a pointer). Also on devices without kernels, whose
operators run one by one."""

import os
import subprocess
from pathlib import Path

import driver_scripts
import pytest
import torch

import torch_backend

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return driver_scripts.opencl_settings(driver_scripts.kernels(tmp_path_factory, "opencl"), HAL_OPENCL_MEMORY="buffer")


NETWORK = """
import torch
from torch import nn
import torch_backend

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 10)
        self.table = nn.Parameter(torch.randn(40, 10))

    def forward(self, x):
        y = nn.functional.gelu(self.norm(self.first(x)))
        return self.last(y).softmax(-1) + self.table[x.sum(1).long()] * 2

torch.manual_seed(0)
network = Network().eval().requires_grad_(False)
device = torch_backend.device_name()

def compile_package(model, *inputs, dynamic=True, **options):
    shapes = tuple({0: torch.export.Dim("batch", max=1024)} if x.dim() else None for x in inputs) if dynamic else None
    program = torch.export.export(model, inputs, dynamic_shapes=shapes)
    torch._inductor.aoti_compile_and_package(program, package_path="model.pt2", inductor_configs=options)
    return torch._inductor.aoti_load_package("model.pt2")

def close(ours, theirs):
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)
"""


def test_kernels_from_source(run_python, settings):
    run_python(NETWORK + """
import copy
x = torch.rand(8, 16)
loaded = compile_package(copy.deepcopy(network).to(device), x.to(device))
for batch in (8, 2, 77):
    x = torch.rand(batch, 16)
    close(loaded(x.to(device)), network(x))

network.load_state_dict({key: torch.randn_like(value) for key, value in network.state_dict().items()})
loaded.load_constants({key: value.to(device) for key, value in network.state_dict().items()}, check_full_update=True)
close(loaded(x.to(device)), network(x))

try:
    loaded((x + 1000).to(device))
    torch.accelerator.synchronize()
    raise SystemExit("no error")
except IndexError as error:
    assert "is out of bounds" in str(error), error
""", timeout=900, **settings)  # fmt: skip


def test_numbers_of_the_host_are_passed_by_value(run_python, settings):
    run_python(NETWORK + """
class Scaled(nn.Module):
    def forward(self, x, scale):
        return x.sin() * scale + x.shape[0]

for scale in (torch.tensor(2.5), torch.tensor(-3.0)):
    x = torch.randn(6, 5)
    loaded = compile_package(Scaled(), x.to(device), scale) if scale > 0 else loaded
    close(loaded(x.to(device), scale), Scaled()(x, scale))
""", timeout=900, **settings)  # fmt: skip


def test_a_program_without_python(run_python, settings, tmp_path):
    run_python(NETWORK + """
compiled = compile_package(network.to(device), torch.rand(8, 16).to(device))
torch.save(compiled(torch.ones(3, 16).to(device)).cpu(), "result.pt")
""", timeout=900, **settings)  # fmt: skip
    package, build = Path(torch_backend.__file__).parent, tmp_path / "build"
    subprocess.run(["cmake", "-S", ROOT / "docs/examples/libtorch", "-B", build, f"-Dtorch_backend_DIR={package / 'cmake'}",
                    f"-DTORCH_BACKEND_TORCH_DIR={Path(torch.__file__).parent}", "-DCMAKE_CXX_FLAGS=-O0"], check=True, capture_output=True)  # fmt: skip
    subprocess.run(["cmake", "--build", build, "--target", "package"], check=True, capture_output=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HAL_", "TORCH_BACKEND", "PYTHON"))}
    done = subprocess.run([build / "package", tmp_path / "model.pt2", "opencl", "3"], env={**environment, **settings}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ours = torch.tensor([[float(number) for number in line.split()] for line in done.stdout.splitlines()])
    torch.testing.assert_close(ours, torch.load(tmp_path / "result.pt"), rtol=1e-5, atol=1e-5)


def test_a_device_without_kernels(run_python):
    """The host cannot access its memory, and it compiles no source."""
    run_python(NETWORK + """
import copy
x = torch.rand(8, 16)
loaded = compile_package(copy.deepcopy(network).to(device), x.to(device))
for batch in (8, 3):
    close(loaded(x[:batch].to(device)), network(x[:batch]))
""", timeout=900, TORCH_BACKEND="fake", HAL_FAKE_PROTECT=1)  # fmt: skip
