"""AOTInductor on devices that compile source: the package contains kernels in the portable dialect, and the host does
not access device memory (HAL_OPENCL_MEMORY=buffer: an address is not a pointer). Also on devices without kernels, whose
operators run one by one."""

import os
import subprocess
from pathlib import Path

import driver_scripts
import precompiled
import pytest
import torch

import torch_backend

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return driver_scripts.opencl_settings(driver_scripts.kernels(tmp_path_factory, "opencl"), HAL_OPENCL_MEMORY="buffer")


NETWORK = """
import copy
import json
import zipfile

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


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The C++ program of the guide."""
    package, build = Path(torch_backend.__file__).parent, tmp_path_factory.mktemp("program")
    subprocess.run(["cmake", "-S", ROOT / "docs/examples/libtorch", "-B", build, f"-Dtorch_backend_DIR={package / 'cmake'}",
                    f"-DTORCH_BACKEND_TORCH_DIR={Path(torch.__file__).parent}", *precompiled.settings()], check=True, capture_output=True)  # fmt: skip
    subprocess.run(["cmake", "--build", build, "--target", "package"], check=True, capture_output=True)
    return build / "package"


def check_program(program, folder, plugin, **settings):
    """Runs the package of the folder, and compares with result.pt there, the CPU's output for three rows of ones."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HAL_", "TORCH_BACKEND", "PYTHON"))}
    environment.update({name: str(value) for name, value in settings.items()})
    done = subprocess.run([program, folder / "model.pt2", plugin, "3"], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ours = torch.tensor([[float(number) for number in line.split()] for line in done.stdout.splitlines()])
    torch.testing.assert_close(ours, torch.load(folder / "result.pt"), rtol=1e-5, atol=1e-5)


def test_a_program_without_python(run_python, settings, program, tmp_path):
    run_python(NETWORK + """
torch.save(network(torch.ones(3, 16)), "result.pt")
compile_package(network.to(device), torch.rand(8, 16).to(device))
""", timeout=900, **settings)  # fmt: skip
    check_program(program, tmp_path, "opencl", **settings)


def test_a_device_without_kernels(run_python, program, tmp_path):
    """The host cannot access its memory, and it compiles no source."""
    settings = {"HAL_FAKE_PROTECT": 1}
    run_python(NETWORK + """
x = torch.rand(8, 16)
expected = [network(x[:batch]) for batch in (8, 3)]
torch.save(network(torch.ones(3, 16)), "result.pt")
loaded = compile_package(network.to(device), x.to(device))
for y in expected:
    close(loaded(x[:len(y)].to(device)), y)
""", timeout=900, TORCH_BACKEND="fake", **settings)  # fmt: skip
    check_program(program, tmp_path, "fake", **settings)


def test_operators_of_a_device_without_kernels(run_python):
    """They include those for which torch has no C function, and small constants, which are not written into loops."""
    run_python(NETWORK + """
@torch.library.custom_op("package_test::made", mutates_args=())
def made(x: torch.Tensor, device: torch.device, factor: float) -> torch.Tensor:
    return (x * factor).to(device)

@made.register_fake
def _(x, device, factor):
    return torch.empty_like(x, device=device)

class Operators(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("number", torch.tensor(2.5))

    def forward(self, x, i):
        n, device = x.shape[0], x.device
        return {
            "factories": [torch.full((n, 2), 2.5, device=device), torch.zeros(n, dtype=torch.int32, device=device), torch.ones((), device=device),
                          torch.full((2,), n / 2, device=device), torch.scalar_tensor(n, device=device), torch.tensor([1, 2, 3], device=device),
                          torch.full((2,), True, device=device), torch.full((2,), -float("inf"), dtype=torch.bfloat16, device=device)],
            "ranges": [torch.arange(n, device=device), torch.arange(1, 2 * n + 3, 2, device=device), torch.arange(0, 1, 0.25, device=device),
                       torch.linspace(0, 1, 5, device=device)],
            "numbers": [1 - x, i + 1, i ** 2, 2 ** i, torch.add(i, i, alpha=n), x.clamp(0, n), x.masked_fill(x > 0, 0.5), (2 ** 53 + 1) * i],
            "constants": [self.linear(x), x * self.number, self.number, self.linear.bias, self.linear.bias.cpu() + 1],
            "renamed": [torch.select_scatter(x, x[0], 0, 1), *torch._foreach_add([x, x + 1], 2.0), x.view(torch.int32), x.double()],
            "custom": made(x, device, 1.5),
            "random": [torch.rand(n, device=device), torch.randint(3, 5, (n,), device=device)],
        }

operators = Operators().requires_grad_(False)
x, i = torch.randn(6, 4), torch.arange(6)
loaded = compile_package(copy.deepcopy(operators).to(device), x.to(device), i.to(device))
for batch in (6, 9):
    x, i = torch.randn(batch, 4), torch.arange(batch)
    ours, theirs = loaded(x.to(device), i.to(device)), operators(x, i)
    for numbers, low, high in zip(ours.pop("random"), (0, 3), (1, 4)):
        assert numbers.shape == (batch,) and (numbers >= low).all() and (numbers <= high).all(), numbers
    theirs.pop("random")
    ours = torch.utils._pytree.tree_map(torch.Tensor.cpu, ours)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)

nodes = [name for name in zipfile.ZipFile("model.pt2").namelist() if name.endswith("wrapper.json")]
names = {node["node"]["target"] for name in nodes for node in json.loads(zipfile.ZipFile("model.pt2").read(name))["nodes"]}
assert names == {"package_test::made"}, f"C++ programs have no operators that are defined in Python: {names}"
""", timeout=900, TORCH_BACKEND="fake", HAL_FAKE_PROTECT=1)  # fmt: skip
