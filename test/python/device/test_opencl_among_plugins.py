"""fake, opencl and "threads" in one process: each computes, and tensors are copied between all of them, in all layouts.
Each script runs in a separate process; CPU PyTorch is the reference."""

import textwrap
from pathlib import Path

import driver_scripts
import pytest

THREADS = sorted((Path(__file__).resolve().parents[3] / "plugins" / "threads").glob("*.c"))
SETUP = """
import itertools, torch, torch_backend
plugins = {p.name: p for p in torch_backend.plugins()}
assert list(plugins) == ["fake", "ocl", "threads"], plugins
ALL = [f"fake:{p.first_device + i}" for p in plugins.values() for i in range(p.device_count)]
FAKE, OCL, THREADS = (f"fake:{p.first_device}" for p in plugins.values())
"""


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    settings = driver_scripts.opencl_kernels(tmp_path_factory, HAL_ALLOW_UNSAFE_PLUGINS="1")
    del settings["TORCH_BACKEND"]  # each script names the plugins
    return settings


@pytest.fixture
def run(run_python, build_plugin, caches):
    plugins = f"fake,opencl,{build_plugin('threads', *THREADS)}"

    def run(script, **settings):
        settings = {"TORCH_BACKEND": plugins, "HAL_FAKE_DEVICES": 2, "HAL_LAYERS": "validate", **caches, **settings}
        done = run_python(SETUP + textwrap.dedent(script), timeout=300, **settings)
        assert "validate: " not in done.stderr
        return done

    return run


# "svm-coarse" behaves almost like "buffer" here, and each kind compiles its kernels again.
MEMORY = pytest.mark.parametrize("memory", ["svm-fine", "buffer", pytest.param("svm-coarse", marks=pytest.mark.slow)])


@MEMORY
def test_tensors_of_any_layout_go_from_each_to_each(run, memory):
    run(
        """
        base = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
        layouts = {
            "contiguous": lambda t: t,
            "with an offset": lambda t: t[1, 1:],
            "transposed": lambda t: t.transpose(1, 3),
            "every second": lambda t: t[..., ::2],
            "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
            "broadcast": lambda t: t[:, :1].expand(2, 6, 4, 5),
            "one element": lambda t: t[1, 2, 3, 4],
            "none": lambda t: t[:0],
        }
        for source, (name, layout) in itertools.product(ALL, layouts.items()):
            truth, there = layout(base), layout(base.to(source))
            for target, non_blocking in itertools.product([*ALL, "cpu"], (False, True)):
                moved = there.to(target, non_blocking=non_blocking)
                torch.fake.synchronize(source)  # the host looks at it, if the target is the CPU
                assert moved.device == torch.device(target) and torch.equal(moved.cpu(), truth), (source, target, name)
                # and into a tensor of another layout, whose adjacent elements must not change
                wide = torch.full((*truth.shape, 2), -1.0, device=target)
                wide[..., 1].copy_(there, non_blocking=non_blocking)
                torch.fake.synchronize(source)
                wide = wide.cpu()
                assert torch.equal(wide[..., 1], truth) and bool((wide[..., 0] == -1).all()), (source, target, name)
        """,
        HAL_OPENCL_MEMORY=memory,
    )


def test_every_dtype_goes_from_each_to_each_as_it_is_or_converted(run):
    run(
        """
        numbers = torch.tensor([0, 1, 2, 3, 100, 127])
        dtypes = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
                  torch.float32, torch.float64, torch.complex64, torch.complex128]
        for dtype, source, target in itertools.product(dtypes, (FAKE, OCL, THREADS), (FAKE, OCL, THREADS)):
            truth = numbers.to(dtype)
            moved = truth.to(source).to(target)
            assert moved.dtype == dtype and torch.equal(moved.cpu(), truth), (dtype, source, target)
        for source, target in itertools.permutations((FAKE, OCL, THREADS), 2):
            for dtype in (torch.float64, torch.int32, torch.float16):
                assert torch.equal(numbers.float().to(source).to(target, dtype).cpu(), numbers.to(dtype))
        """
    )


@MEMORY
def test_each_computes_on_what_another_made(run, memory):
    run(
        """
        torch.manual_seed(0)
        a, b = torch.randn(33, 20), torch.randn(20, 17)
        truth = torch.relu(a @ b).t() * 2 - 1
        for first, second, third in itertools.permutations((FAKE, OCL, THREADS)):
            product = a.to(first) @ b.to(first)
            turned = torch.relu(product.to(second)).t()
            result = turned.to(third) * 2 - 1
            torch.testing.assert_close(result.cpu(), truth, rtol=1e-5, atol=1e-5)
        for device in ALL:  # in one step of the same process, streams of all at work
            torch.testing.assert_close((a.to(device) @ b.to(device)).softmax(1).cpu(), (a @ b).softmax(1), rtol=1e-5, atol=1e-6)
        for first, second in itertools.permutations((FAKE, OCL, THREADS), 2):
            try:
                a.to(first) + a.to(second)
            except RuntimeError as error:
                assert "device" in str(error)
            else:
                raise SystemExit("operands of two devices")
        """,
        HAL_OPENCL_MEMORY=memory,
    )


def test_a_copy_waits_for_the_work_of_both_sides(run):
    run(
        """
        n = 1 << 20
        for source, target in itertools.permutations(ALL, 2):
            work, far = torch.ones(n, device=source), torch.zeros(n, device=target)
            for _ in range(10):
                work, far = work + 1, far + 1  # both queues are full
            far.copy_(work, non_blocking=True)
            work.fill_(-1)  # after the copy
            back = far * 2
            assert torch.equal(back.cpu(), torch.full((n,), 22.0)), (source, target)
            side = torch.fake.Stream(target)
            event = torch.fake.Event()
            event.record(torch.fake.current_stream(source))
            side.wait_event(event)
            with torch.fake.stream(side):
                seen = work.to(target)
            side.synchronize()
            assert torch.equal(seen.cpu(), torch.full((n,), -1.0)), (source, target)
        """,
        HAL_FAKE_DELAY=2000,
    )


def test_gradients_cross_the_plugins(run):
    run(
        """
        torch.manual_seed(0)
        weights = [torch.randn(8, 8) for _ in range(3)]
        x = torch.randn(5, 8)

        def grads(places):
            leaves = [w.clone().to(place).requires_grad_() for w, place in zip(weights, places)]
            value = x
            for leaf in leaves:
                value = torch.tanh(value.to(leaf.device) @ leaf)
            value.square().sum().backward()
            assert all(leaf.grad.device == leaf.device for leaf in leaves)
            return [leaf.grad.cpu() for leaf in leaves]

        truth = grads(["cpu"] * 3)
        for places in itertools.permutations((FAKE, OCL, THREADS)):
            for mine, right in zip(grads(places), truth):
                torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-5)
        """
    )
