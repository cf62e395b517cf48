"""Each test of torch.compile, functorch and FakeTensor begins without compiled code."""

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
