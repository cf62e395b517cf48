"""A process ends cleanly whatever it did last: many exits each, from a harness that forks before the device is used."""

import time

import pytest

HARNESS = """
import os, sys
import torch, torch_backend
torch_backend.use("fake")
# A thread that waits for the GIL does not get it before the main thread blocks or ends: without the step at exit, half of the
# children that end right after backward() then abort.
sys.setswitchinterval(100)
{setup}
bad, children = [], []
for number in range({exits}):
    child = os.fork()
    if child == 0:
        break
    status = os.waitpid(child, 0)[1]
    if status:
        bad.append(status)
else:
    print(f"{{len(bad)}} of {exits} exits failed: {{bad}}")
    sys.exit(bool(bad))
{body}
# The child falls off the end: the interpreter is finalised as in any script.
"""

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

LIVE_TENSORS = """
kept = [torch.randn(1000, device=f"fake:{i}") for i in (0, 1)]
stream = torch.fake.Stream()
event = torch.fake.Event()
with torch.fake.stream(stream):
    for _ in range(50):
        kept[0] = kept[0] * 1.5
    event.record()
torch.kept = kept, stream, event, torch.Generator(device="fake")
"""

CPU_BACKWARD = """
x = torch.ones(8, requires_grad=True)
(x * 2).sum().backward()
"""


EXCEPTION = BACKWARD + "\nsys.stderr = open(os.devnull, 'w')\nsys.exit(0)\n"


def test_twenty_exits_right_after_backward(run_python):
    done = run_python(HARNESS.format(setup="", exits=20, body=BACKWARD), HAL_FAKE_DEVICES=2, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "terminate" not in done.stderr and "Fatal" not in done.stderr


@pytest.mark.parametrize(
    "body",
    [CUSTOM_FUNCTION, TRAINING, LIVE_TENSORS, CPU_BACKWARD, EXCEPTION],
    ids=["custom_function", "training", "live_tensors", "cpu_backward", "sys_exit"],
)
def test_exits_after_other_last_words(run_python, body):
    done = run_python(HARNESS.format(setup="", exits=5, body=body), HAL_FAKE_DEVICES=2, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "terminate" not in done.stderr and "Fatal" not in done.stderr


def test_a_child_of_a_process_that_ran_backward_on_the_cpu_ends_cleanly(run_python):
    """Its parent's autograd threads do not exist in it; nothing may wait for them."""
    done = run_python(HARNESS.format(setup=CPU_BACKWARD, exits=5, body="torch.ones(3, device='fake')"), check=False)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr[-3000:]


def test_a_child_of_a_user_of_the_device_ends_cleanly_and_at_once(run_python):
    begin = time.monotonic()
    done = run_python(HARNESS.format(setup=BACKWARD, exits=5, body=""), check=False)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr[-3000:]
    assert time.monotonic() - begin < 40  # torch's engine waits 10 s in each for threads that only the parent has


def test_an_exception_after_backward_ends_with_its_own_code(run_python):
    done = run_python(BACKWARD.join(("import torch", "raise ValueError('last')")), TORCH_BACKEND="fake", check=False)
    assert done.returncode == 1 and "ValueError: last" in done.stderr and "terminate" not in done.stderr


ENDLESS = """
import threading
kept = [torch.randn(1000, device=f"fake:{i}") for i in (0, 1)]
def enqueue(number):  # a daemon: nobody joins it
    with torch.fake.stream(torch.fake.Stream(f"fake:{number % 2}")):
        while True:
            kept[number % 2] * 1.5
for number in range(3):
    threading.Thread(target=enqueue, args=(number,), daemon=True).start()
kept[0] = kept[0] * 2
"""


def test_daemon_threads_that_enqueue_without_end_do_not_delay_the_exit(run_python):
    """A stream's queue is bounded, so what is left to do at exit is little."""
    done = run_python(
        "import time, torch, torch_backend\n" + ENDLESS + "time.sleep(1.0)\nprint(time.time())",
        TORCH_BACKEND="fake",
        HAL_FAKE_DEVICES=2,
        timeout=60,
    )
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("body", [LIVE_TENSORS + BACKWARD, ENDLESS], ids=["live_tensors_and_streams", "daemons"])
def test_two_hundred_exits_with_live_tensors_and_running_streams(run_python, body):
    done = run_python(HARNESS.format(setup="", exits=200, body=body), HAL_FAKE_DEVICES=2, check=False, timeout=1800)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "terminate" not in done.stderr and "Fatal" not in done.stderr
