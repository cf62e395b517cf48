"""Fixtures of the tests of torch.compile."""

import pytest
import torch


@pytest.fixture
def newly_compiled():
    """Disables cached code of earlier runs: the tests check newly generated code."""
    import torch._inductor.config

    torch._dynamo.reset()
    with torch._inductor.config.patch(fx_graph_cache=False):
        yield
    torch._dynamo.reset()


@pytest.fixture
def check_waiting(device):
    """Checks that a compiled kernel reads data written by earlier queued work."""

    def check():
        compiled = torch.compile(lambda x: torch.sin(x) + 1)
        big = torch.full((1 << 20,), 0.25, device=device)
        compiled(big)
        for _ in range(20):
            x = big
            for _ in range(4):
                x = x * 2  # queued
            torch.testing.assert_close(compiled(x)[-1].item(), float(torch.sin(torch.tensor(4.0)) + 1))

    return check
