"""If the host cannot access device memory, the fallback copies only the bytes that the operands cover; the rest of
their storages is unchanged."""

import pytest

PRELUDE = """
import torch
from torch_backend import fallback

def storage(count=1000):
    return torch.arange(count, dtype=torch.float64)

def check(change, count=1000):
    '''Runs a function of a tensor's storage on the CPU and the device; the whole storages must be the same afterwards.'''
    ours, theirs = storage(count).to("fake"), storage(count)
    results = change(ours), change(theirs)
    for ours_, theirs_ in zip(*(r if isinstance(r, tuple) else (r,) for r in results)):
        torch.testing.assert_close(ours_.cpu(), theirs_, equal_nan=True)
    torch.testing.assert_close(ours.cpu(), theirs)
    assert fallback.report(), "the device has a kernel for this now: take another operator"
    fallback.reset()
"""


@pytest.fixture
def run(run_python):
    def run(script, **settings):
        return run_python(PRELUDE + script, TORCH_BACKEND="fake", HAL_FAKE_PROTECT="1", **settings)

    return run


def test_results_of_views(run):
    run("""
check(lambda x: torch.linalg.det(x[100:116].view(4, 4) + 0))
check(lambda x: torch.linalg.lu_factor(x.as_strided((3, 3), (7, 2), 500).sin())[0])
check(lambda x: torch.linalg.qr(x.view(10, 100)[2:5, 3:90:11].cos())[1].abs())
check(lambda x: torch.linalg.svdvals(x.view(10, 100).t()[40:44]))
check(lambda x: torch.linalg.inv(x[:0].view(0, 0)))
""")


def test_written_views(run):
    run("""
def written(operator):
    return lambda x: operator(x)
check(written(lambda x: x[100:110].polygamma_(1)))
check(written(lambda x: x.view(10, 100)[3:5, ::7].t().polygamma_(1)))
check(written(lambda x: torch.polygamma(1, x[10:20] + 1, out=x[500:510])))
check(written(lambda x: torch.polygamma(1, x[10:20] + 1, out=x[15:25])))  # the operand has a storage of its own
check(written(lambda x: x[990:].polygamma_(1)))
""", HAL_DISABLE_OPS="polygamma")  # fmt: skip


def test_views_of_one_storage_as_several_operands(run):
    run("""
check(lambda x: torch.igamma(x[1:11], x[5:15], out=x[900:910]))
check(lambda x: torch.igamma(x[900:910], x[1:11]))
check(lambda x: x[5:15].igamma_(x[900:910]))
""", HAL_DISABLE_OPS="igamma")  # fmt: skip


def test_resized_results(run):
    """The kernel allocates new memory for `out`, whose storage is shared with other tensors."""
    run("""
import warnings
warnings.simplefilter("ignore")
def grown(x):
    out = x[3:3]
    torch.polygamma(1, storage(1200).to(x.device) + 1, out=out)
    return out, x[:3]
check(grown)
def inside(x):
    out = x[100:102]
    torch.polygamma(1, storage(50).to(x.device) + 1, out=out)
    return out, x
check(inside)
def beyond(x):
    out = x[990:991]
    torch.polygamma(1, storage(100).to(x.device) + 1, out=out)
    return out, x[:990]
check(beyond)
""", HAL_DISABLE_OPS="polygamma")  # fmt: skip


def test_operators_that_reach_other_elements(run):
    run("""
torch.library.define("staging::last", "(Tensor x) -> Tensor")
torch.library.impl("staging::last", "cpu", lambda x: x.as_strided((1,), (1,), x.untyped_storage().nbytes() // x.itemsize - 1).clone())
check(lambda x: torch.ops.staging.last(x[:2]))
""")


def test_the_copies_are_as_large_as_the_views(run):
    """Measures the time on a storage of 400 MB: copying the whole storage would take hundreds of times as long."""
    run("""
import time
def seconds(x):
    begin = time.perf_counter()
    torch.linalg.det(x)
    return time.perf_counter() - begin
small = torch.eye(4, device="fake")
large = torch.empty(100_000_000, device="fake")[:16].view(4, 4).copy_(small)
assert large.untyped_storage().nbytes() == 400_000_000
least = [min(seconds(x) for _ in range(20)) for x in (small, large)]
assert least[1] < 20 * least[0] + 1e-3, least
""")
