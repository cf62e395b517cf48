"""A process exits cleanly after any last action: many exits of each kind, of children that were forked before the
device was used. On the fake device and on a driver of Vulkan."""

import json
import re
import time
from pathlib import Path

import driver_scripts
import pytest

HARNESS = Path(__file__).parents[1].joinpath("exits.py").read_text()

BACKWARD = """
x = torch.ones(4, device="fake", requires_grad=True)
(x * x).sum().backward()
"""

CUSTOM_FUNCTION = """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

x = torch.ones(64, 64, device="fake", requires_grad=True)
x.register_hook(lambda grad: grad + 0)
Double.apply(x).sum().backward()
"""

TRAINING = """
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to("fake:1")
optimizer = torch.optim.Adam(net.parameters())
for _ in range(3):
    optimizer.zero_grad()
    net(torch.randn(4, 8, device="fake:1")).sum().backward()
    optimizer.step()
"""

# With HAL_FAKE_DELAY=200 the items take a tenth of a second together.
LIVE_TENSORS = """
kept = [torch.randn(1000, device=f"fake:{i}") for i in (0, 1)]
stream = torch.fake.Stream()
event = torch.fake.Event()
with torch.fake.stream(stream):
    for _ in range(600):
        kept[0] = kept[0] * 1.5
    event.record()
if os.environ.get("HAL_FAKE_DELAY") and os.environ["HAL_FAKE_ASYNC"] == "1":
    assert not stream.query() and not event.query(), "the stream's work was over before the exit"
torch.kept = kept, stream, event, torch.Generator(device="fake")
"""

CPU_BACKWARD = """
x = torch.ones(8, requires_grad=True)
(x * 2).sum().backward()
"""

ENDLESS = """
import threading
kept = [torch.randn(1000, device=f"fake:{i}") for i in (0, 1)]
def enqueue(number):  # a daemon: no thread joins it
    with torch.fake.stream(torch.fake.Stream(f"fake:{number % 2}")):
        while True:
            kept[number % 2] * 1.5
for number in range(3):
    threading.Thread(target=enqueue, args=(number,), daemon=True).start()
kept[0] = kept[0] * 2
"""

# The interpreter joins such threads first at exit.
LAST_THREAD = """
import threading
def enqueue():
    x = torch.randn(1000, device="fake:1")
    for _ in range(600):
        x = x * 1.5
    torch.last = x
threading.Thread(target=enqueue).start()
"""

SYS_EXIT = "\nsys.exit(3)\n"
EXCEPTION = "\nraise ValueError('last')\n"
TRACEBACK = r"Traceback \(most recent call last\):\n(?: .*\n)+ValueError: last\n"

OS_EXIT = "\nos._exit(4)\n"  # without the exit handlers of Python and of the C library

# name: (body, exit code, regular expression of the whole stderr)
ENDINGS = {
    "the end": (LIVE_TENSORS, 0, ""),
    "after backward": (LIVE_TENSORS + BACKWARD, 0, ""),
    "sys.exit": (LIVE_TENSORS + SYS_EXIT, 3, ""),
    "exception": (LIVE_TENSORS + EXCEPTION, 1, TRACEBACK),
    "daemons": (ENDLESS, 0, ""),
    "exception with daemons": (ENDLESS + EXCEPTION, 1, TRACEBACK),
    "last thread": (LAST_THREAD + LIVE_TENSORS, 0, ""),
    "os._exit": (LIVE_TENSORS + OS_EXIT, 4, ""),
}


@pytest.fixture
def ends(run_python, tmp_path):
    """Runs bodies in turn in `exits` children; returns the outcome of each."""

    def run(*bodies, exits, setup="", seconds=120, plugin="fake", **settings):
        job = {"bodies": bodies, "exits": exits, "setup": setup, "seconds": seconds, "plugin": plugin}
        (tmp_path / "job.json").write_text(json.dumps(job))
        done = run_python(HARNESS, arguments=("-X", "faulthandler"), timeout=seconds * exits, HAL_FAKE_DEVICES=2, **settings)
        found = json.loads(done.stdout)
        assert sorted(end["number"] for end in found) == list(range(exits))
        return found

    return run


def faults(found, expected=((0, ""),)):
    """Returns a message for each exit that was late, or had another code or other output than expected."""
    sentences = []
    for end in found:
        code, words = expected[end["number"] % len(expected)]
        if end["late"] or end["code"] != code or not re.fullmatch(words, end["stderr"]):
            sentences.append(f"exit {end['number']}: code {end['code']}{', late' if end['late'] else ''}\n{end['stderr']}")
    return sentences


def test_bad_exits_among_good_ones_are_found(ends):
    """The failures that the tests below would report if an exit went wrong."""
    bad = ["os.abort()", "os.kill(os.getpid(), signal.SIGSEGV)", "import atexit; atexit.register(time.sleep, 600)", "os._exit(1)",
           "os.write(2, b'terminate called without an active exception\\n')"]  # fmt: skip
    good = "torch.ones(3, device='fake')"
    found = faults(ends(*[body for pair in zip(bad, [good] * len(bad)) for body in pair], exits=2 * len(bad), seconds=15))
    assert sorted(sentence.partition(":")[0] for sentence in found) == [f"exit {number}" for number in range(0, 2 * len(bad), 2)], found


@pytest.mark.parametrize("exits", [8, pytest.param(20, marks=pytest.mark.slow)])
def test_exits_right_after_backward(ends, exits):
    assert not faults(ends(BACKWARD, exits=exits))


@pytest.mark.parametrize("exits", [10, pytest.param(20, marks=pytest.mark.slow)])
def test_exits_after_other_last_words(ends, exits):
    bodies = [CUSTOM_FUNCTION, TRAINING, LIVE_TENSORS, CPU_BACKWARD, BACKWARD + "\nsys.exit(0)"]
    assert not faults(ends(*bodies, exits=exits))


def test_a_child_of_a_process_that_ran_backward_on_the_cpu_ends_cleanly(ends):
    """Its parent's autograd threads do not exist in it; no thread may wait for them."""
    assert not faults(ends("torch.ones(3, device='fake')", setup=CPU_BACKWARD, exits=5))


def test_a_child_of_a_user_of_the_device_ends_cleanly_and_at_once(ends):
    begin = time.monotonic()
    assert not faults(ends("", setup=BACKWARD, exits=5))
    assert time.monotonic() - begin < 40  # PyTorch's engine waits 10 s in each for threads that only the parent has


def test_an_exception_after_backward_ends_with_its_own_code(run_python):
    done = run_python("import torch" + BACKWARD + EXCEPTION, TORCH_BACKEND="fake", check=False)
    assert done.returncode == 1 and re.fullmatch(TRACEBACK, done.stderr), done.stderr


def test_the_threads_of_autograd_run_a_last_task_before_the_end(run_python):
    """A task that PyTorch refused would only be a line of the log."""
    done = run_python("import torch" + BACKWARD, TORCH_BACKEND="fake", HAL_LOG="info")
    assert "devices 0 to" in done.stderr and "waiting for autograd's threads" not in done.stderr, done.stderr


def test_daemon_threads_that_enqueue_without_end_do_not_delay_the_exit(run_python):
    """A stream's queue is bounded, so that little work remains at exit."""
    done = run_python(
        "import time, torch, torch_backend\n" + ENDLESS + "time.sleep(1.0)\nprint(time.time())",
        TORCH_BACKEND="fake",
        HAL_FAKE_DEVICES=2,
        timeout=60,
    )
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(("asynchronous", "exits"), [("1", 200), ("0", 50)], ids=["asynchronous", "inline"])
def test_two_hundred_exits_with_live_tensors_and_running_streams(ends, asynchronous, exits):
    bodies, codes, words = zip(*ENDINGS.values())
    begin = time.monotonic()
    found = ends(*bodies, exits=exits, HAL_FAKE_ASYNC=asynchronous, HAL_FAKE_DELAY=200)
    print(f"{exits} exits in {time.monotonic() - begin:.0f} s")
    assert not faults(found, tuple(zip(codes, words)))


@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", ["0", "1"])
@pytest.mark.parametrize("ending", list(ENDINGS))
def test_an_interpreter_of_its_own_ends_as_the_children_do(run_python, ending, asynchronous):
    body, code, words = ENDINGS[ending]
    settings = {"TORCH_BACKEND": "fake", "HAL_FAKE_DEVICES": 2, "HAL_FAKE_ASYNC": asynchronous, "HAL_FAKE_DELAY": 200}
    done = run_python("import os, sys, torch" + body, check=False, **settings)
    assert done.returncode == code and re.fullmatch(words, done.stderr), done.stderr


# ---- a driver of Vulkan ----
# Copies and fills that a driver for CPUs executes for some tenths of a second, and work of operators: on the device
# with a pack of kernels, else on the CPU.
VULKAN_WORK = """
BYTES = 1 << 21
kept = [torch.empty(2 * BYTES, device=f"vk:{i}", dtype=torch.uint8) for i in (0, 1)]
numbers = torch.ones(1000, device="vk:1") * 1.5
pinned = torch.empty(BYTES, dtype=torch.uint8, pin_memory=True)
stream, event = torch.vk.Stream(), torch.vk.Event()
with torch.vk.stream(stream):
    for _ in range(60):
        kept[0].zero_()
        kept[0][:BYTES].copy_(kept[0][BYTES:])
        pinned.copy_(kept[0][:BYTES], non_blocking=True)
    event.record()
assert "cpu" not in torch.vk.get_device_name() or not event.query(), "the stream's work was over before the exit"
torch.kept = kept, numbers, pinned, stream, event, torch.Generator(device="vk")
"""


def on_vulkan(body):
    return body.replace("torch.fake", "torch.vk").replace('"fake', '"vk')


VULKAN_ENDINGS = {
    "a live tensor": ("torch.kept = torch.ones(1000, device='vk')", 0, ""),
    "the end": (VULKAN_WORK, 0, ""),
    "after backward": (VULKAN_WORK + on_vulkan(BACKWARD), 0, ""),
    "sys.exit": (VULKAN_WORK + SYS_EXIT, 3, ""),
    "exception": (VULKAN_WORK + EXCEPTION, 1, TRACEBACK),
    "os._exit": (VULKAN_WORK + OS_EXIT, 4, ""),
    "daemons": (VULKAN_WORK + on_vulkan(ENDLESS), 0, ""),
    "last thread": (on_vulkan(LAST_THREAD) + VULKAN_WORK, 0, ""),
}


@pytest.mark.parametrize(("exits", "memory"), [(8, "visible"), pytest.param(24, "visible", marks=pytest.mark.slow), pytest.param(200, "device", marks=pytest.mark.slow)])
def test_exits_with_live_tensors_and_running_streams_on_a_driver_of_vulkan(ends, tmp_path, exits, memory):
    settings = driver_scripts.vulkan_settings(tmp_path, HAL_VULKAN_REPEAT="2", HAL_VULKAN_MEMORY=memory)
    bodies, codes, words = zip(*VULKAN_ENDINGS.values())
    found = ends(*bodies, exits=exits, plugin="vulkan", **settings)
    assert not faults(found, tuple(zip(codes, words)))
