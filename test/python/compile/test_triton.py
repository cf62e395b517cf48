"""Triton's kernels on the plugin cuda, on the mock driver, which records loads and launches of cubins: Triton's own
launcher, the PTX and the arguments determine what a launch must be. Kernels of a vendor's Triton are in
test_triton_vendor.py."""

import importlib.util
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import driver_scripts
import pytest

HERE = Path(__file__).resolve().parent
FOLDER = Path(os.environ.get("TRITON_PACKAGES", HERE.parents[2] / "build" / "triton"))
IS_INSTALLED = (FOLDER / "triton").is_dir() or importlib.util.find_spec("triton") is not None
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not IS_INSTALLED, reason="Triton is not installed; `make test-full` installs it")]

HEAD = f"import sys; sys.path.insert(0, {str(HERE)!r}); sys.path.append({str(FOLDER)!r})\n"
SIZES = {"u8": 1, "b8": 1, "s8": 1, "u16": 2, "b16": 2, "u32": 4, "b32": 4, "f32": 4, "u64": 8, "b64": 8, "f64": 8}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    found = driver_scripts.cuda_settings(driver_scripts.kernels(tmp_path_factory, "cuda"))
    return {**found, "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}


@pytest.fixture
def run(run_python, settings, tmp_path):
    """Runs a script with the kernels of triton_kernels.py; `record` is the mock driver's record."""
    record = tmp_path / "record"
    head = f"{HEAD}import torch, torch_backend, triton\nimport triton.language as tl\nfrom triton_kernels import *\nrecord = Record({str(record)!r})\n"
    return lambda script, **more: run_python(head + script, timeout=300, **{**settings, "CUDA_MOCK_CUBINS": record, **more})


def launch_all(settings, folder, *names, **more):
    """Runs triton_kernels.py; returns its lines by the names of the launches."""
    record = folder / "record"
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(FOLDER))))
    environment = {**os.environ, **settings, "CUDA_MOCK_CUBINS": str(record), "PYTHONPATH": path, **more}
    done = subprocess.run([sys.executable, HERE / "triton_kernels.py", record, *names], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def launched(settings, tmp_path_factory):
    return launch_all(settings, tmp_path_factory.mktemp("launched"))


def parse(line):
    """Returns the fields of a launch in the record."""
    found = re.fullmatch(r"launch (\w+) grid=([\d,]+) block=([\d,]+) shared=(\d+) attributes=(\S*) args=(\S*)", line)
    numbers = [tuple(map(int, found[index].split(","))) for index in (2, 3)]
    return {"kernel": found[1], "grid": numbers[0], "block": numbers[1], "shared": int(found[4]), "attributes": found[5],
            "args": [bytes.fromhex(arg) for arg in found[6].split(",")]}  # fmt: skip


def launches(lines):
    return [line for line in lines if line.startswith("launch ")]


def fnv(data):
    value = 14695981039346656037
    for byte in data:
        value = (value ^ byte) * 1099511628211 % (1 << 64)
    return f"module bytes={len(data)} fnv={value:016x}"


# The names are those of triton_kernels.py, so that each is a test.
NAMES = re.findall(r"^@launch\ndef (\w+)", (HERE / "triton_kernels.py").read_text(), re.M)


@pytest.mark.parametrize("name", NAMES)
def test_a_launch_is_that_of_tritons_own_launcher_and_of_the_ptx(name, launched):
    row = launched[name]
    ours, theirs = launches(row["ours"]), launches(row["theirs"])
    assert len(theirs) == 1 and ours[-1] == theirs[0]
    loaded = [line for one in launched.values() for line in one["ours"]]  # a kernel of two launches is loaded once
    assert fnv(bytes.fromhex(row["cubin"])) in loaded, "the plugin loads the bytes of Triton's cubin"
    launch = parse(ours[-1])
    entry = re.search(rf"\.entry {row['kernel']}\((.*?)\)(.*?)\{{", row["ptx"], re.S)
    parameters = re.findall(r"\.param (?:\.align \d+ )?\.(\w+)[^\n\[]*(?:\[(\d+)\])?", entry[1])
    assert [len(arg) for arg in launch["args"]] == [SIZES[kind] * int(count or 1) for kind, count in parameters]
    required = re.search(r"\.reqntid (\d+)", entry[2])
    assert launch["block"] == (int(required[1]), 1, 1) == (row["threads"], 1, 1)
    assert (launch["kernel"], launch["shared"]) == (row["kernel"], row["shared"])
    if row["grid"]:
        ctas = 2 if name == "blocks_of_a_cluster" else 1
        assert launch["grid"] == (row["grid"][0] * ctas, *(row["grid"][1:] + [1, 1])[:2])


def values(row, form):
    return [struct.unpack("<" + letter, arg)[0] for letter, arg in zip(form, parse(launches(row["ours"])[-1])["args"], strict=True)]


def test_arguments_have_their_values_in_the_kernels_order(launched):
    row = launched["numbers"]
    assert values(row, "QffiqQ?QQ") == [*row["addresses"], 2.5, pytest.approx(-1e-3), -7, 1 << 40, (1 << 63) + 5, True, 0, 0]
    row = launched["numbers_with_a_pointer_for_none"]
    assert values(row, "QffiqI?QQQ"[:10])[1:7] == [float("inf"), float("inf"), 3, -(1 << 50), 12, False]
    row = launched["annotated_numbers"]
    assert values(row, "QeHdbHqIQQ") == [*row["addresses"], pytest.approx(1.1, abs=1e-3), 0x4049, 2.0 / 3, -3, 65535, -(1 << 62), 4000000000, 0, 0]
    row = launched["tuples"]
    assert values(row, "QQiQfiQQ")[4:6] == [2.5, 7]
    row = launched["sizes_that_are_1_or_odd"]
    assert values(row, "QiQQ") == [*row["addresses"], 17, 0, 0], "sizes of 1 are constants of the kernel"


def test_the_fixed_launches_have_the_required_attributes_and_memory(launched):
    assert parse(launches(launched["blocks_of_a_cluster"]["ours"])[0])["attributes"] == "cluster:2:1:1;"
    assert parse(launches(launched["cooperative_and_overlapping"]["ours"])[0])["attributes"] == "overlap:1;cooperative:1;"
    assert launched["dot_with_more_shared_memory_than_the_default"]["shared"] > 48 << 10
    assert parse(launches(launched["scratch_memory"]["ours"])[0])["args"][-2] != bytes(8)
    tried = {parse(line)["block"] for line in launches(launched["tuned"]["ours"])}
    assert tried == {(64, 1, 1), (128, 1, 1)}, "the autotuner has measured both configurations"


def test_a_descriptor_of_the_host_becomes_its_parts_or_is_refused(settings, tmp_path_factory, run):
    row = launch_all(settings, tmp_path_factory.mktemp("described"), "host_descriptor", CUDA_MOCK_CAPABILITY="80")["host_descriptor"]
    assert launches(row["ours"]) == launches(row["theirs"]) != []
    run("""
kernel, grid, args, _ = host_descriptor()
try:
    kernel[grid](*args)
except NotImplementedError as error:
    assert "host_described_kernel" in str(error) and "tl.make_tensor_descriptor" in str(error)
else:
    raise AssertionError("no error")
assert not [line for line in record.new_lines() if line.startswith("launch")]
""")


def test_invalid_arguments_are_errors_that_name_the_argument(run):
    run("""
def fails(kind, words, *args):
    try:
        add_kernel[(1,)](*args, BLOCK=64)
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(words)

x, y, out = tensor(64), tensor(64), tensor(64)
add_kernel[(1,)](x, y, out, 17, BLOCK=64)
record.new_lines()
fails(ValueError, ("argument 1 of the Triton kernel 'add_kernel'", "a tensor on 'cpu'", ".to('nvgpu:0')"), x, y.cpu(), out, 17)
fails(ValueError, ("argument 2", "'nvgpu:1'"), x, y, out.to("nvgpu:1"), 17)
compiled = add_kernel.warmup(x, y, out, 17, BLOCK=64, grid=(1,))
compiled[(1, 1, 1)](x, y, out, 17, 64)
for wrong, words in ((1 << 40, ("argument 3", "1099511627776", "i32")), ("17", ("argument 3", "'17'")), (None, ("argument 3", "None"))):
    try:
        compiled[(1, 1, 1)](x, y, out, wrong, 64)
    except (TypeError, OverflowError, Exception) as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(wrong)
try:
    compiled[(1, 1, 1)](3.5, y, out, 17, 64)
except TypeError as error:
    assert "argument 0 of the Triton kernel 'add_kernel' must be a tensor, an address or None, not float" in str(error)
else:
    raise AssertionError("3.5")
assert len([line for line in record.new_lines() if line.startswith("launch")]) == 1
""")


def test_grids_of_0_blocks_launch_nothing_and_too_large_ones_are_errors(run):
    run("""
x = tensor(64)
add_kernel[(0,)](x, x, x, 64, BLOCK=64)
add_kernel[(3, 0, 2)](x, x, x, 64, BLOCK=64)
assert not [line for line in record.new_lines() if line.startswith("launch")]
for grid in ((1, 70000), (1, 1, 70000), (1 << 31,)):
    try:
        add_kernel[grid](x, x, x, 64, BLOCK=64)
    except RuntimeError as error:
        assert "add_kernel" in str(error), error
    else:
        raise AssertionError(grid)
""")


def test_a_kernel_with_too_much_shared_memory_is_out_of_resources(run):
    run("""
from triton.runtime.errors import OutOfResources
a, b, c = (tensor(512, 512, dtype=torch.float16) for _ in range(3))
try:
    dot_kernel[(2, 2)](a, b, c, 512, 512, 512, 256, 256, 64, num_stages=5, num_warps=8)
except OutOfResources as error:
    assert str(99 << 10) in str(error), error
else:
    raise AssertionError("no error")
from triton.runtime import driver
assert driver.active.utils.get_device_properties(0)["max_shared_mem"] == 99 << 10
""")


def test_launches_run_on_the_current_device_and_stream_in_the_streams_order(run):
    run("""
from triton.runtime import driver
x, stream = tensor(64), torch.Stream(DEVICE)
add_kernel[(1,)](x, x, x, 64, BLOCK=64)
with stream:
    assert driver.active.get_current_stream(0) == stream.stream_id
    torch.nvgpu._sleep(200_000_000)
    add_kernel[(2,)](x, x, x, 64, BLOCK=64)
torch.accelerator.current_stream().synchronize()
assert record._path.read_text().count("launch") == 1, "the second launch waits for its stream"
stream.synchronize()
assert "grid=2" in record.new_lines()[-1]
with torch.accelerator.device_index(1):
    assert driver.active.get_active_torch_device() == torch.device("nvgpu:1")
    y = tensor(64).to("nvgpu:1")
    add_kernel[(3,)](y, y, y, 64, BLOCK=64)
    torch.accelerator.synchronize(1)
assert record.new_lines()[-1].count(y.data_ptr().to_bytes(8, "little").hex()) == 3
""")


def test_hooks_of_launches_receive_the_metadata(run):
    run("""
from triton import knobs
seen = []
knobs.runtime.launch_enter_hook.add(lambda metadata: seen.append(("enter", metadata.get()["name"])))
knobs.runtime.launch_exit_hook.add(lambda metadata: seen.append(("exit", metadata.get()["name"])))
x = tensor(64)
add_kernel[(1,)](x, x, x, 64, BLOCK=64)
assert seen == [("enter", "add_kernel"), ("exit", "add_kernel")], seen
""")


GENERATED = {
    "pointwise": "lambda x: (x * 2 + 1).relu()",
    "functions": "lambda x: x.exp() + x.tanh() + torch.nn.functional.gelu(x)",
    "sums": "lambda x: (x.sum(), x.sum(0), x.mean(-1), x.var(-1), x.amax(-1), x.argmax(-1))",
    "softmax": "lambda x: x.softmax(-1).log()",
    "layer norm": "lambda x: torch.nn.functional.layer_norm(x, (96,))",
    "scan": "lambda x: x.cumsum(-1)",
    "random numbers": "lambda x: torch.nn.functional.dropout(x, 0.5)",
    "halves": "lambda x: x.half() * 2 + x.bfloat16().float()",
    "indices": "lambda x: x[x.argmax(-1)] + x.gather(1, x.argsort(-1))",
    "a transposed sum": "lambda x: x.t().contiguous() + x.view(96, 64)",
}


@pytest.mark.parametrize("name", GENERATED)
def test_inductor_generates_kernels_on_request(name, run):
    """The kernels of a graph are those of the generated code, with the addresses of the tensors and a grid that covers them."""
    run(f"""
import re
from torch._inductor.utils import run_and_get_code
x = tensor(64, 96)
function = {GENERATED[name]}
_, (code, *_) = run_and_get_code(torch.compile(function), x)
names = set(re.findall(r"^(triton_\\w+) = async_compile", code, re.M))
assert names and "= compile_kernel(" not in code, code
lines = [line for line in record.new_lines() if line.startswith("launch ")]
assert {{line.split()[1] for line in lines}} == names, (lines, names)
assert any(x.data_ptr().to_bytes(8, "little").hex() in line for line in lines), lines
for line in lines:
    if "triton_poi" in line and "grid=1," not in line:
        assert all(int(one) >= 1 for one in re.search(r"grid=([\\d,]+)", line)[1].split(","))
""", TORCH_BACKEND_INDUCTOR_TRITON="1")


def test_generated_kernels_of_a_training_step(run):
    run("""
layer = torch.nn.Sequential(torch.nn.Linear(96, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Dropout(0.1)).to(DEVICE)
step = torch.compile(lambda x: layer(x).square().mean())
for _ in range(2):
    step(tensor(64, 96)).backward()
lines = [line.split()[1] for line in record.new_lines() if line.startswith("launch triton_")]
assert any("backward" in line for line in lines) and any("gelu" in line for line in lines), lines
assert all(parameter.grad is not None for parameter in layer.parameters())
""", TORCH_BACKEND_INDUCTOR_TRITON="1")


def test_generated_kernels_need_a_launcher_in_python_and_a_valid_setting(run):
    run("""
x = tensor(64)
import torch._inductor.config as config
try:
    with config.patch(cpp_wrapper=True):
        torch.compile(lambda x: x + 1)(x)
    raise SystemExit("cpp_wrapper has no launcher")
except Exception as error:
    assert "unset TORCH_BACKEND_INDUCTOR_TRITON" in str(error), error
""", TORCH_BACKEND_INDUCTOR_TRITON="1")
    run("""
try:
    torch.compile(lambda x: x + 1)(tensor(64))
    raise SystemExit("the value is not valid")
except Exception as error:
    assert "TORCH_BACKEND_INDUCTOR_TRITON is 'yes'; use 0 or 1" in str(error), error
""", TORCH_BACKEND_INDUCTOR_TRITON="yes")


def test_a_graph_repeats_launches_and_threads_do_not_mix_their_arguments(run):
    run("""
import threading
x, graph = tensor(64), torch.nvgpu.Graph()
add_kernel[(1,)](x, x, x, 64, BLOCK=64)
with torch.nvgpu.graph(graph):
    add_kernel[(5,)](x, x, x, 64, BLOCK=64)
record.new_lines()
graph.replay()
graph.replay()
assert [line.split()[2] for line in record.new_lines()] == ["grid=5,1,1"] * 2

tensors = [tensor(64) for _ in range(8)]
def work(index):
    for _ in range(100):
        add_kernel[(index + 1,)](tensors[index], tensors[index], tensors[index], 64, BLOCK=64)
threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
lines = record.new_lines()
assert len(lines) == 800
for line in lines:
    index = int(line.partition("grid=")[2].partition(",")[0]) - 1
    assert line.count(tensors[index].data_ptr().to_bytes(8, "little").hex()) == 3
""")


def test_deferred_work_and_launches_keep_their_order(run):
    run("""
from torch_backend import lazy
out = tensor(64)
add_kernel[(1,)](out, out, out, 64, BLOCK=64)
with lazy.record():
    x = torch.ones(64, device=DEVICE) * 3
    add_kernel[(2,)](x, x, out, 64, BLOCK=64)
    y = x + 1
assert y.sum().item() == 256 and "grid=2" in record.new_lines()[-1]
""")


def test_triton_is_imported_by_the_program_only_and_its_own_choice_comes_first(run_python, settings):
    run_python(f"""{HEAD}
import torch, torch_backend
torch.ones(3, device="nvgpu").sum()
assert not [name for name in sys.modules if name.partition(".")[0] == "triton"]
import torch_backend.triton
assert "triton" not in sys.modules
from triton.runtime import driver
assert type(driver.active).__name__ == "CudaDriver" and type(driver.active).__module__.startswith("torch_backend.triton")
""", **settings)  # fmt: skip
    run_python(f"{HEAD}import triton, torch, torch_backend\nfrom triton.runtime import driver\nassert driver.active.get_current_target().backend == 'cuda'", **settings)
    done = run_python(f"{HEAD}import torch, torch_backend\nfrom triton.runtime import driver\ndriver.active", check=False, TRITON_DEFAULT_BACKEND="nvidia", **settings)
    assert "Backend device 'nvidia' is not active" in done.stderr


def test_a_device_without_a_compiler_is_one_error_with_the_cure(run_python):
    run_python(HEAD + """
import torch, torch_backend
torch_backend.use("fake")
from triton.runtime import driver
import triton

@triton.jit
def kernel(x):
    pass

try:
    kernel[(1,)](torch.ones(3, device="fake"))
except RuntimeError as error:
    message = str(error)
assert "Triton cannot compile for 'fake:0'" in message and "'native,host," in message and "the device's vendor" in message, message
""")  # fmt: skip


def program_of_the_guide():
    return re.search(r"```python\n(.*?)```", (HERE.parents[2] / "docs/triton.md").read_text(), re.S)[1]


def test_the_program_of_the_guide_launches_its_kernel(run_python, settings, tmp_path):
    record = tmp_path / "record"
    more = {"CUDA_MOCK_CUBINS": record, "TORCHINDUCTOR_CACHE_DIR": tmp_path / "inductor"}
    run_python(HEAD + program_of_the_guide() + "torch.accelerator.synchronize()\n", timeout=300, **{**settings, **more})
    found = [parse(line) for line in launches(record.read_text().splitlines())]
    assert [(launch["kernel"], launch["grid"]) for launch in found] == [("add_kernel", (4, 1, 1))] * 2
