"""AOTInductor: a model that is compiled ahead of time runs in Python and in a C++ program, with new weights and other
batch sizes, and is refused by other devices and versions. One package, the guide's, serves the fast tests."""

import contextlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import precompiled
import pytest
import torch
from torch import nn

import torch_backend

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.host_memory("inductor's C++ kernels read and write device addresses")


def network():
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 10)).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder in which the guide's program has written a package, and the model's weights as state.pt."""
    folder = tmp_path_factory.mktemp("package")
    section = (ROOT / "docs/torch-compile.md").read_text().partition("\n## Models compiled ahead of time")[2]
    code = re.search(r"```python\n(.*?)```", section, re.S)[1]
    # Precompiled headers take longer than they save one package.
    quick = "import torch._inductor.config\ntorch._inductor.config.aot_inductor.precompile_headers = False\n"
    (folder / "guide.py").write_text(quick + code + 'torch.save({key: value.cpu() for key, value in model.state_dict().items()}, "state.pt")\n')
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_BACKEND"}
    done = subprocess.run([sys.executable, "-P", "guide.py"], env=environment, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def reference(folder):
    """The same model on the CPU."""
    model = network()
    model.load_state_dict(torch.load(folder / "state.pt"))
    return model.requires_grad_(False)


def load(folder, name="model.pt2", **options):
    return torch._inductor.aoti_load_package(str(folder / name), **options)


def close(ours, theirs):
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)


def test_any_batch_on_any_device_and_stream(folder, reference, device, module):
    for index in (0, 1):
        model = load(folder, device_index=index)
        for batch in (2, 8, 77):
            x = torch.randn(batch, 16)
            result = model(x.to(f"{device}:{index}"))
            assert result.device == torch.device(device, index)
            close(result, reference(x))
    assert module.current_device() == 0
    x = torch.randn(1024, 16)
    model, queued = load(folder), x.to(device)
    module.synchronize()
    with module.stream(module.Stream()):
        for _ in range(8):
            queued = queued * 2  # read by the model in the order of the stream
        result = model(queued)
    module.synchronize()
    torch.testing.assert_close(result.cpu(), reference(x * 256), rtol=1e-5, atol=1e-3)


def test_weights_are_updated_and_released(folder, reference, device, module):
    x = torch.randn(4, 16)
    before = module.memory_allocated(1)
    model = load(folder, device_index=1)
    held = module.memory_allocated(1)
    assert held >= before + sum(value.nbytes for value in reference.state_dict().values())
    on_device = x.to(f"{device}:1")
    close(model(on_device), reference(x))
    for place, options in ((f"{device}:1", {}), ("cpu", {"allow_h2d_copy": True})):
        reference.load_state_dict({key: torch.randn_like(value) for key, value in reference.state_dict().items()})
        weights = {key: value.to(place) for key, value in reference.state_dict().items()}
        with contextlib.suppress(TypeError) if options else contextlib.nullcontext():  # a later torch may drop the option
            model.load_constants(weights, check_full_update=True, **options)
        close(model(on_device), reference(x))
    del model, weights, on_device
    assert module.memory_allocated(1) == before


def test_weights_of_any_layout_are_accepted(folder, reference, device):
    x, model = torch.randn(4, 16), load(folder)
    layouts = {
        "part of a larger tensor": lambda value: torch.stack([torch.full_like(value, float("nan")), value, torch.full_like(value, float("nan"))])[1],
        "other strides": lambda value: value.t().contiguous().t(),
        "gaps": lambda value: value.repeat_interleave(2, -1)[..., ::2],
    }
    for user_managed in (False, True):
        for name, layout in layouts.items():
            reference.load_state_dict({key: torch.randn_like(value) for key, value in reference.state_dict().items()})
            weights = {key: layout(value.to(device)) for key, value in reference.state_dict().items()}
            if user_managed and name != "part of a larger tensor":
                with pytest.raises(RuntimeError, match="constant '.*' of the package has strides .*leave out user_managed"):
                    model.load_constants(weights, check_full_update=True, user_managed=True)
            else:
                model.load_constants(weights, check_full_update=True, user_managed=user_managed)
                close(model(x.to(device)), reference(x))


def test_weights_of_another_shape_or_dtype_are_refused(folder, reference, device):
    x, model = torch.randn(4, 16), load(folder)
    weights = {key: value.to(device) for key, value in reference.state_dict().items()}
    model.load_constants(weights, check_full_update=True)
    key = next(key for key in weights if key.endswith("weight"))
    for other, words in (
        (weights[key].t(), rf"'{key}' of the package has shape \[.*\], and the given tensor has \["),
        (weights[key][:-1], rf"'{key}' of the package has shape"),
        (weights[key].flatten(), rf"'{key}' of the package has shape"),
        (weights[key].bfloat16(), rf"'{key}' of the package has dtype Float, and the given tensor has BFloat16"),
        (weights[key].int(), rf"'{key}' of the package has dtype Float, and the given tensor has Int"),
    ):
        for user_managed in (False, True):
            with pytest.raises(RuntimeError, match=words):
                model.load_constants({**weights, key: other}, check_full_update=True, user_managed=user_managed)
    close(model(x.to(device)), reference(x))


def test_inputs_on_another_device_are_named(folder, device):
    model = load(folder)
    with pytest.raises(RuntimeError, match="input '.*' of the package must be on device 0 .*, but it is on the CPU"):
        model(torch.randn(4, 16))
    with pytest.raises(RuntimeError, match="input '.*' of the package must be on device 0 .*, but it is on device 1"):
        model(torch.randn(4, 16, device=f"{device}:1"))
    with pytest.raises(RuntimeError, match=r"\(4x3 and 16x32\)"):
        model(torch.randn(4, 3, device=device))


def changed(folder, name, suffix, before, after):
    """Copies the package with another text in the files with a suffix."""
    with zipfile.ZipFile(folder / "model.pt2") as source, zipfile.ZipFile(folder / name, "w") as copy:
        for item in source.infolist():
            data = source.read(item.filename)
            if item.filename.endswith(suffix):
                assert before.encode() in data
                data = data.replace(before.encode(), after.encode())
            copy.writestr(item.filename, data)
    return name


PLUGIN = next(iter(torch_backend.plugins()))
MINOR = ".".join(torch.__version__.split(".")[:2])
REFUSED = {
    "torch": (".torch_backend", f"torch {MINOR},", "torch 2.99,", f"was compiled for torch 2.99, .*has torch {MINOR}, .*Compile it again"),
    "plugin": (".torch_backend", f"{PLUGIN.name} {PLUGIN.version}", f"{PLUGIN.name} 0.0.9", f"{PLUGIN.name} 0.0.9, and .* plugin {PLUGIN.name} {PLUGIN.version}"),
    "device": ("_metadata.json", f'"{PLUGIN.name}"', '"other"', f"was compiled for 'other', and this process uses '{PLUGIN.name}'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_packages_for_others_are_refused_with_both_named(folder, case, caplog):
    suffix, before, after, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        load(folder, changed(folder, f"{case}.pt2", suffix, before, after))
    assert not caplog.records, "one error, without torch's warning"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The C++ program of the guide."""
    package, build = Path(torch_backend.__file__).parent, tmp_path_factory.mktemp("program")
    subprocess.run(["cmake", "-S", ROOT / "docs/examples/libtorch", "-B", build, f"-Dtorch_backend_DIR={package / 'cmake'}",
                    f"-DTORCH_BACKEND_TORCH_DIR={Path(torch.__file__).parent}", *precompiled.settings()], check=True, capture_output=True)  # fmt: skip
    done = subprocess.run(["cmake", "--build", build, "--target", "package"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return build / "package"


def run(program, *arguments, **settings):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HAL_", "TORCH_BACKEND", "PYTHON"))}
    return subprocess.run([program, *map(str, arguments)], env={**environment, **settings}, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_a_program_without_python(folder, reference, program):
    for asynchronous in "01":
        done = run(program, folder / "model.pt2", "fake", 3, HAL_FAKE_ASYNC=asynchronous)
        assert done.returncode == 0, done.stderr
        close(torch.tensor([[float(number) for number in line.split()] for line in done.stdout.splitlines()]), reference(torch.ones(3, 16)))
    for case, (suffix, before, after, message) in REFUSED.items():
        done = run(program, folder / changed(folder, f"{case}.pt2", suffix, before, after))
        assert done.returncode == 1 and re.search(message, done.stderr), done.stderr


# ---- other models and options: each is compiled ----
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, x):
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.second(x))


def images():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))  # fmt: skip


MODELS = {"images": (images, (3, 12, 12)), "attention": (Attention, (7, 32))}


def compiled(model, x, folder, dynamic=True, **options):
    shapes = ({0: torch.export.Dim("batch", max=4096)},) if dynamic else None
    with torch.no_grad():
        program = torch.export.export(model, (x,), dynamic_shapes=shapes)
    options = {name.replace("__", "."): value for name, value in options.items()}
    return torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"), inductor_configs=options)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_networks_as_on_the_cpu(name, dynamic, device, tmp_path):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().eval().requires_grad_(False)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.uniform_(-1, 1), layer.running_var.uniform_(0.5, 2)
    inputs = [torch.randn(batch, *shape) for batch in ((6, 2, 33) if dynamic else (6,))]
    expected = [model(x) for x in inputs]
    path = compiled(model.to(device), inputs[0].to(device), tmp_path, dynamic)
    loaded = torch._inductor.aoti_load_package(path)
    for x, y in zip(inputs, expected):
        close(loaded(x.to(device)), y)


def test_a_package_in_a_process_without_the_device_is_refused_with_the_cure(run_python, folder):
    done = run_python(f"""
import torch, torch_backend
torch._inductor.aoti_load_package({str(folder / "model.pt2")!r})
""", check=False, TORCH_BACKEND="")
    assert "the package is for the device 'fake', and no plugin is in use. Call torch_backend.use" in done.stderr, done.stderr


@pytest.mark.slow
def test_a_program_in_inline_mode(run_python, folder, device):
    run_python(f"""
import torch, torch_backend
x = torch.randn(5, 16)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 10)).eval().requires_grad_(False)
model.load_state_dict(torch.load({str(folder / "state.pt")!r}))
loaded = torch._inductor.aoti_load_package({str(folder / "model.pt2")!r})
torch.testing.assert_close(loaded(x.to("fake")).cpu(), model(x), rtol=1e-5, atol=1e-5)
""", TORCH_BACKEND="fake", HAL_FAKE_ASYNC=0)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"aot_inductor__package_constants_in_so": False}, {"aot_inductor__package_constants_on_disk_format": "binary_blob"},
                                     {"aot_inductor__force_mmap_weights": True}], ids=["none", "file", "mapped"])  # fmt: skip
def test_weights_outside_of_the_library(options, device, tmp_path):
    torch.manual_seed(0)
    model = network().requires_grad_(False)
    x = torch.randn(6, 16)
    expected = model(x)
    loaded = torch._inductor.aoti_load_package(compiled(model.to(device), x.to(device), tmp_path, **options))
    if "aot_inductor__package_constants_in_so" in options:
        with pytest.raises(RuntimeError, match="load_constants"):
            loaded(x.to(device))
        loaded.load_constants(dict(model.state_dict()), check_full_update=True)
    close(loaded(x.to(device)), expected)


@pytest.mark.slow
def test_small_weights_are_kept_on_request(device, tmp_path):
    """Inductor writes weights of up to 8 elements into the code."""
    model = nn.Sequential(nn.Linear(16, 4)).eval().requires_grad_(False)
    x = torch.randn(6, 16)
    loaded = torch._inductor.aoti_load_package(compiled(model.to(device), x.to(device), tmp_path, always_keep_tensor_constants=True))
    changed = {key: torch.randn(value.shape) for key, value in model.state_dict().items()}
    loaded.load_constants({key: value.to(device) for key, value in changed.items()}, check_full_update=True)
    close(loaded(x.to(device)), nn.functional.linear(x, changed["0.weight"], changed["0.bias"]))


@pytest.mark.slow
def test_an_operator_that_cannot_be_compiled_is_named(device, tmp_path):
    library = torch.library.Library("package_test", "FRAGMENT")
    library.define("made(Tensor x, Device device, complex z) -> Tensor")
    library.impl("made", lambda x, device, z: torch.ones(3, device=device), "CompositeExplicitAutograd")
    torch.library.register_fake("package_test::made", lambda x, device, z: torch.empty(3, device=device), lib=library)

    class Network(nn.Module):
        def forward(self, x):
            return x + torch.ops.package_test.made(x, x.device, 1j)  # the line

    lines = Path(__file__).read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.endswith(")  # the line"))
    message = rf"AOTInductor cannot compile package_test.made[^\n]*\nIn the code for package_test.made.default at {re.escape(__file__)}:{number}: "
    with pytest.raises(Exception, match=message):
        compiled(Network(), torch.randn(3, device=device), tmp_path, dynamic=False)
