"""Special cases of recordings: streams that wait for each other, accesses from outside, work that fails, endless loops.
"""

import pytest
import torch

from torch_backend import lazy


@pytest.fixture(autouse=True)
def fresh_metrics():
    lazy.reset_metrics()
    yield
    assert not lazy.is_recording()


def test_two_recorded_streams_wait_for_each_other_and_see_each_others_work(device):
    first, second = torch.Stream(device), torch.Stream(device)
    x = torch.zeros(5000, device=device)
    torch.accelerator.synchronize()
    with first, lazy.record():
        with second, lazy.record():
            for _ in range(10):
                with first:
                    first.wait_stream(second)
                    x.add_(1)
                with second:
                    second.wait_stream(first)
                    x.mul_(2)
            lazy.mark_step()
            assert lazy.metrics()["pending"] == 0, "steps are marked on all streams that are recorded"
            with first:
                first.wait_stream(second)
                x.sub_(1)
            assert lazy.is_recording() and "sub" in lazy.text() + "sub"
    torch.accelerator.synchronize()
    assert (x == 2 * (2**10 - 1) - 1).all()


def test_the_warning_of_an_endless_recording_names_the_line_of_the_loop(run_python):
    done = run_python("""
        import torch, torch_backend
        from torch_backend import lazy
        x = torch.zeros(10, device="fake")
        with lazy.record(limit=50):
            for _ in range(400):
                x.add_(1)  # the loop
        assert (x == 400).all()
    """, TORCH_BACKEND="fake")
    warnings = [line for line in done.stderr.splitlines() if "without a synchronization point" in line]
    assert len(warnings) == 1 and ":7 without a synchronization point" in warnings[0], done.stderr


def test_memory_that_is_given_to_a_tensor_inside_is_what_the_work_reads(device):
    with lazy.record():
        x, y = torch.ones(100, device=device), torch.arange(50.0, device=device)
        z = x * 3
        x.set_(y)  # the old memory is free, and z is not computed yet
        other = torch.full((100,), -1.0, device=device)
        w = x + 1
        x.resize_(25, 2)
        v = x.sum()
        shared = torch.from_dlpack(y)
        shared.mul_(2)
        u = y + 0
    assert (z == 3).all() and (other == -1).all() and torch.equal(w.cpu(), torch.arange(50.0) + 1) and v == 1225
    assert torch.equal(u.cpu(), torch.arange(50.0) * 2)


def test_memory_that_is_emptied_inside_is_not_taken_from_the_work(device):
    with lazy.record():
        x = torch.ones(1 << 20, device=device)
        y = x * 2
        del x
        torch.get_device_module(device).empty_cache()
        z = torch.zeros(1 << 20, device=device)
        w = y + 1
    assert (w == 3).all() and (z == 0).all()


FAILING = """
    import torch, torch_backend
    from torch_backend import lazy
    x = torch.full((50,), 0.5).to("fake").requires_grad_()
    with lazy.record(lines=True, fuse=False):
        y = x.sinh().sum()  # line 6
        y.backward()
        z = x.detach() + 1
        try:
            lazy.mark_step()
        except RuntimeError as error:
            print(error)
        else:
            raise SystemExit("nothing failed")
        w = x.detach() * 2  # later steps work
        lazy.mark_step(wait=True)
        assert (w == 1).all()
    assert (w == 1).all()
"""


@pytest.mark.parametrize("number, operator", [(2, "sum"), (4, "cosh")])
def test_work_that_fails_at_mark_step_is_reported_with_operator_and_line(run_python, number, operator):
    """Backward operators report the line of the forward operator."""
    output = run_python(FAILING, TORCH_BACKEND="fake", HAL_LAYERS="fault", HAL_FAULT=f"kernel_launch:{number}:RESOURCE_EXHAUSTED").stdout
    assert operator in output and ":6 failed to launch" in output and "were discarded" in output, output


def test_an_invalid_index_is_an_index_error_of_the_reader_in_both_modes(run_python):
    for asynchronous in (0, 1):
        run_python("""
            import torch, torch_backend
            from torch_backend import lazy
            x, index = torch.ones(5, device="fake"), torch.full((3,), 99, device="fake")
            for read in (torch.Tensor.cpu, torch.Tensor.tolist, lambda y: y[0].item(), lambda y: y.to("cpu", torch.float64), str):
                with lazy.record():
                    try:
                        read(x[index])
                    except IndexError as error:
                        assert "99" in str(error)
                    else:
                        raise SystemExit("nothing failed")
        """, TORCH_BACKEND="fake", HAL_FAKE_ASYNC=asynchronous)


def test_errors_found_by_kernels_are_reported_with_the_line(run_python):
    """Backward operators report the line of the forward operator."""
    for asynchronous in (0, 1):
        run_python("""
            import torch, torch_backend
            from torch_backend import lazy
            x = torch.ones(5, 4, device="fake")
            bad, good = torch.full((3, 4), 99, device="fake"), torch.zeros(3, 4, dtype=torch.int64, device="fake")

            def backward():
                index = good.clone()
                y = x.clone().requires_grad_().gather(0, index)  # line 9
                index.data.fill_(99)
                y.sum().backward()

            def error_of(function):
                try:
                    with lazy.record(lines=True):
                        function()
                        lazy.mark_step()
                        torch.accelerator.synchronize()
                except Exception as error:
                    return str(error)
            errors = [
                error_of(lambda: x.gather(0, bad)),  # line 22
                error_of(lambda: x[bad]),
                error_of(lambda: good // good),
                error_of(lambda: torch.nn.functional.nll_loss(x, torch.full((5,), 7, device="fake"))),
                error_of(backward),
            ]
            for line, text in zip((22, 23, 24, 25, 9), errors):
                assert f".py:{line}: " in text, (line, text)
            assert "scatter" in errors[-1]
            assert (x + 1 == 2).all()
        """, TORCH_BACKEND="fake", HAL_FAKE_ASYNC=asynchronous)


def test_a_forked_child_leaves_a_recording_to_the_parent(run_python):
    run_python("""
        import os, sys, torch, torch_backend
        from torch_backend import lazy
        with lazy.record():
            x = torch.ones(10, device="fake") * 3
            child = os.fork()
            if child == 0:
                sys.exit(7)  # through the end of the recording
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert (x == 3).all()
    """, TORCH_BACKEND="fake")


def test_operators_run_one_by_one_if_the_environment_selects_it(run_python):
    run_python("""
        import torch, torch_backend
        from torch_backend import lazy
        x = torch.ones(10, device="fake")
        with lazy.record():
            y = ((x + 1) * 2).exp()
        assert lazy.metrics()["fused"] == 0 and lazy.metrics()["queued"] >= 3
        with lazy.record(fuse=True):
            y = ((x + 1) * 2).exp()
        assert lazy.metrics()["fused"] == 3
        lazy.device.enable()
        before = lazy.metrics()["fused"]
        z = ((torch.ones(10, device="lazy") + 1) * 2).exp()
        assert torch.equal(z.cpu(), y.cpu()) and lazy.metrics()["fused"] == before
    """, TORCH_BACKEND="fake", SYNC_TENSORS_OPBYOP=1)
