"""What the tests of torch.compile share."""

import pytest
import torch


@pytest.fixture
def newly_compiled():
    """Without code that an earlier run has cached: what is tested is what is generated now."""
    import torch._inductor.config

    torch._dynamo.reset()
    with torch._inductor.config.patch(fx_graph_cache=False):
        yield
    torch._dynamo.reset()


@pytest.fixture
def check_waiting(device):
    """A check: a compiled kernel reads what is queued before it."""

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
