"""HAL_FAKE_SANITIZE: programs in Python with one error each. The report has the class, the kernel with its operator, the
element, and the lines of the program that allocated, released and submitted."""

import re
from pathlib import Path

import pytest
import yaml

FOUND = 77
ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/sanitizer.md").read_text()
SETTINGS = {"TORCH_BACKEND": "fake", "HAL_FAKE_SANITIZE_EXIT_CODE": str(FOUND)}

BEGIN = """
import torch, torch_backend
device = "fake"
"""
KERNEL = """
def scale(count):
    text = '''#define ARGS(X) X(OUT, float, to), X(IN, float, from), X(VALUE, pk_i64, n)
PK_KERNEL(scale, ARGS) { PK_PROLOGUE(ARGS) PK_ITEM(i, (pk_u64)n) to[i] = 2 * from[i]; }'''
    kernel = torch_backend._C.Kernel(0, "scale", text, "ppi", False, False)
    return lambda to, x: kernel.launch(count, to, x, count)
"""

SIDE = """
main, side = torch.fake.current_stream(), torch.fake.Stream()
"""
TWO_STREAMS = "race: two streams access the same memory without an order"

# name: (classes, program, texts of the report)
PROGRAMS = {
    "a kernel with a wrong count": (
        "memory",
        KERNEL
        + """
def use_it(x):
    scale(101)(torch.zeros(101, device=device), x)
x = torch.zeros(100, device=device)  # MADE
use_it(x)
""",
        ["memory: access after the end", "scale: read of 4 bytes", "element 100 of argument 1", "use_it", "MADE"],
    ),
    "a graph whose input was released": (
        "memory",
        """
x = torch.ones(1000, device=device)  # MADE
graph = torch.accelerator.Graph()
with graph:
    y = x * 2
del x  # DROPPED
torch.ones(10, device=device)
graph.replay()  # REPLAYED
torch.fake.synchronize()
""",
        ["memory: access to released memory", "operator mul", "element 0 of argument 1", "MADE", "DROPPED", "REPLAYED"],
    ),
    "a storage that was made smaller": (
        "memory",
        """
def grow_smaller(x):
    x.untyped_storage().resize_(40)  # MADE
    return torch.exp(x)  # USED
x = torch.zeros(100, device=device)
grow_smaller(x)
torch.fake.synchronize()
""",
        ["memory: access after the end", "operator exp", "element 10 of argument", "MADE", "USED"],
    ),
    "the same in lazy mode": (
        "memory",
        """
with torch_backend.lazy.record():
    x = torch.zeros(100, device=device) + 1
    torch_backend.lazy.mark_step()
    x.untyped_storage().resize_(40)
    y = torch.exp(x)
    torch_backend.lazy.mark_step()
torch.fake.synchronize()
""",
        ["memory: access after the end", "read of"],
    ),
    "a sum of new memory": (
        "init",
        """
def total(x):
    return x.sum()  # USED
x = torch.empty(100, device=device)  # MADE
total(x).item()
""",
        ["init: read of memory that was never written", "operator sum", "element 0", "total", "USED", "MADE"],
    ),
    "a product with a row that was not filled": (
        "init",
        """
x = torch.empty(8, 16, device=device)  # MADE
for i in range(7):
    x[i].fill_(1)
y = x @ torch.ones(16, 4, device=device)  # USED
torch.fake.synchronize()
""",
        ["init: read of memory that was never written", "offset 448 in the block", "USED", "MADE"],
    ),
    "new memory is read by the host": (
        "init",
        """
x = torch.empty(3, device=device)  # MADE
x.cpu()  # USED
""",
        ["init: read of memory that was never written", "memory_copy: read of 12 bytes", "USED", "MADE"],
    ),
    "a gradient that was not initialized": (
        "init",
        """
x = torch.ones(10, device=device, requires_grad=True)
y = torch.exp(x)  # FORWARD
y.backward(torch.empty_like(y))  # MADE
torch.fake.synchronize()
""",
        ["init: read of memory that was never written", "operator mul", "backward pass", "FORWARD", "MADE"],
    ),
    "the input of a graph was not set": (
        "init",
        """
x = torch.empty(50, device=device)  # MADE
graph = torch.accelerator.Graph()
with graph:
    y = x + 1
graph.replay()  # REPLAYED
torch.fake.synchronize()
""",
        ["init: read of memory that was never written", "operator add", "REPLAYED", "MADE"],
    ),
    "a library that does not release a reference": (
        "leak",
        """
import ctypes
def hold(storage):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(storage))
hold(torch.ones(25, device=device).untyped_storage())  # MADE
x = torch.ones(50, device=device)
""",
        ["leak: an allocation was not released", ": 100 bytes at", "MADE"],
    ),
    "a side stream does not wait": (
        "race",
        SIDE
        + """
x = torch.ones(1000, device=device)
y = x * 2  # WRITTEN
with side:
    total = y.sum()  # READ
torch.fake.synchronize()
""",
        [TWO_STREAMS, "write; operator mul.Tensor; stream number 1", "read; operator sum.dim_IntList; stream number 2", "element 0 of argument", "WRITTEN", "READ"],
    ),
    "the main stream does not wait for an upload": (
        "race",
        SIDE
        + """
rows = torch.ones(100).pin_memory()
with side:
    x = rows.to(device, non_blocking=True)  # WRITTEN
y = x + 1  # READ
torch.fake.synchronize()
""",
        [TWO_STREAMS, "memory_copy: write; stream number 2", "read; operator add.Tensor; stream number 1", "WRITTEN", "READ"],
    ),
    "an event that was recorded too early": (
        "race",
        SIDE
        + """
x = torch.ones(100, device=device)
event = main.record_event()
x.mul_(3)  # WRITTEN
side.wait_event(event)
with side:
    x.cpu()  # READ
torch.fake.synchronize()
""",
        [TWO_STREAMS, "write; operator mul.Tensor; stream number 1", "memory_copy: read; stream number 2", "WRITTEN", "READ"],
    ),
    "a tensor is released without record_stream": (
        "race",
        SIDE
        + """
x = torch.ones(1000, device=device)  # MADE
side.wait_stream(main)
with side:
    y = torch.exp(x)  # READ
del x  # DROPPED
torch.fake.synchronize()
""",
        ["race: memory was released while another stream may use it", "read; operator exp; stream number 2", "MADE", "READ", "DROPPED"],
    ),
    "a graph is replayed on another stream": (
        "race",
        SIDE
        + """
x = torch.zeros(50, device=device)
graph = torch.accelerator.Graph()
with graph:
    y = x + 1
torch.fake.synchronize()
x.fill_(7)  # WRITTEN
with side:
    graph.replay()  # REPLAYED
torch.fake.synchronize()
""",
        [TWO_STREAMS, "memory_fill: write; stream number 1", "read; operator add.Tensor; stream number 2", "WRITTEN", "REPLAYED"],
    ),
    "a kernel of the program does not wait": (
        "race",
        SIDE
        + KERNEL
        + """
x, y = torch.ones(100, device=device), torch.empty(100, device=device)
torch.fake.synchronize()
with side:
    scale(100)(y, x)  # WRITTEN
y.add_(1)  # CHANGED
torch.fake.synchronize()
""",
        [TWO_STREAMS, "scale: write; stream number 2", "operator add.Tensor; stream number 1", "WRITTEN", "CHANGED"],
    ),
    "deferred work of lazy mode": (
        "race",
        SIDE
        + """
x = torch.ones(100, device=device)
torch.fake.synchronize()
with torch_backend.lazy.record():
    x.mul_(2)
    torch_backend.lazy.mark_step()
with side:
    y = x + 1  # READ
torch.fake.synchronize()
""",
        [TWO_STREAMS, "stream number 1", "read; operator add.Tensor; stream number 2", "READ"],
    ),
    "the result of a collective is read too early": (
        "race",
        SIDE
        + """
import tempfile
import torch.distributed as dist
dist.init_process_group(init_method=f"file://{tempfile.mkdtemp()}/group", rank=0, world_size=1)
x, result = torch.ones(100, device=device), torch.empty(1, 100, device=device)
work = dist.all_gather_into_tensor(result, x, async_op=True)  # WRITTEN
with side:
    total = result.sum()  # READ
work.wait()
torch.fake.synchronize()
dist.destroy_process_group()
""",
        [TWO_STREAMS, "memory_copy: write", "read; operator sum.dim_IntList; stream number 2", "READ"],
    ),
    "new memory in lazy mode": (
        "init",
        """
with torch_backend.lazy.record():
    x = torch.empty(100, device=device)  # MADE
    y = (x + 1).sum()
    y.item()
""",
        ["init: read of memory that was never written", "read of", "MADE"],
    ),
}


def line_of(program, mark):
    return next(number for number, line in enumerate(program.splitlines(), 1) if line.endswith("# " + mark))


# In the fast tests; the others run in `make test-full`.
FAST = ("a kernel with a wrong count", "a graph whose input was released", "new memory in lazy mode", "a library that does not release a reference",
        "a side stream does not wait", "a tensor is released without record_stream")


@pytest.mark.parametrize("name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS])
def test_an_error_of_a_program_is_reported_with_its_operator_element_and_lines(run_python, name):
    classes, body, texts = PROGRAMS[name]
    program = BEGIN + body
    done = run_python(program, check=False, HAL_FAKE_SANITIZE=classes, **SETTINGS)
    assert done.returncode == FOUND, done.stderr
    for text in texts:
        wanted = f".py:{line_of(program, text)})" if text.isupper() else text
        assert wanted in done.stderr, f"no {text!r} in:\n{done.stderr}"


CORRECT = """
import torch, torch_backend
device = "fake"
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Flatten(), torch.nn.Linear(8 * 16, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
side = torch.Stream(device)
for step in range(3):
    x, target = torch.randn(4, 3, 8, 8, device=device), torch.randint(10, (4,), device=device)
    loss = torch.nn.functional.cross_entropy(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    event = torch.Event(device)
    event.record()
    side.wait_event(event)
    with side:
        y = (x * 2).sum()
        x.record_stream(side)
    torch.accelerator.current_stream().wait_stream(side)
    print(loss.item(), y.item())
x = torch.randn(100, device=device)
graph = torch.accelerator.Graph()
with graph:
    z = torch.softmax(x, 0).sort().values
graph.replay()
print(z.sum().item(), torch.linalg.qr(torch.randn(4, 4, device=device)).R.sum().item())
"""


@pytest.mark.parametrize("asynchronous", ["0", "1"])
def test_a_correct_program_has_no_report(run_python, asynchronous):
    plain = run_python(CORRECT, TORCH_BACKEND="fake", HAL_FAKE_ASYNC=asynchronous)
    done = run_python(CORRECT, HAL_FAKE_SANITIZE="memory,init,leak,race", HAL_FAKE_ASYNC=asynchronous, **SETTINGS)
    assert "sanitizer" not in done.stderr and len(done.stdout.splitlines()) == len(plain.stdout.splitlines())


# ---- the page docs/sanitizer.md ----


def program_of_page(mark):
    (code,) = re.findall(rf"<!-- test: sanitizer {mark} -->\n```(?:python)?\n(.*?)```", PAGE, re.S)
    return code


def numbers_replaced(text):
    """Without addresses, which differ between runs, and the folder of the program."""
    return re.sub(r"0x[0-9a-f]+", "0x", re.sub(r"\(\S*/?(?:program|script)\.py:", "(program.py:", text))


@pytest.mark.fresh_interpreter(reason="the whole stack is compared")
def test_the_first_program_of_the_page_has_its_report(run_python):
    done = run_python(program_of_page("init"), check=False, HAL_FAKE_SANITIZE="memory,init,leak,race", **SETTINGS)
    assert done.returncode == FOUND and numbers_replaced(program_of_page("report")) in numbers_replaced(done.stderr), done.stderr


@pytest.mark.fresh_interpreter(reason="the whole stack is compared")
@pytest.mark.parametrize("mark", ["memory", "leak", "race"])
def test_the_other_programs_of_the_page_have_the_reports_that_their_comments_name(run_python, mark):
    code = program_of_page(mark)
    done = run_python(code, check=False, HAL_FAKE_SANITIZE=mark, **SETTINGS)
    (report,) = re.findall(rf"# ({mark}: .*)", code)
    assert done.returncode == FOUND and f"==== fake sanitizer: {report}\n" in done.stderr, done.stderr
    if mark == "race":
        assert program_of_page("race-report") in numbers_replaced(done.stderr), done.stderr


def test_the_workflow_fails_for_a_finding_although_all_tests_pass(run_python):
    step = yaml.safe_load((ROOT / "docs/examples/ci/sanitize.yml").read_text())["jobs"]["test"]["steps"][-1]
    command, _, _ = step["run"].partition(" #")
    assert command.split()[0] == "pytest"
    program = f"""
import pathlib, sys, pytest
pathlib.Path("test_rows.py").write_text("import torch, torch_backend\\ndef test(): torch.empty(3, device='fake').cpu()")
sys.exit(pytest.main({command.split()[1:]!r} + ["-p", "no:cacheprovider"]))
"""
    done = run_python(program, check=False, **step["env"])
    assert done.returncode == 1 and "1 passed" in done.stdout and "init: read of memory" in done.stderr, done.stdout + done.stderr
