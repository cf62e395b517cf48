"""addmv, mv, linalg.cross, renorm, cdist and other operators composed of native ones, compared with CPU PyTorch; the
strict fallback checks that no CPU kernel ran."""

import pytest
import torch

from torch_backend.fallback import strict


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_native(device, function, *operands, **tolerance):
    theirs = function(*(x.clone() for x in operands))
    with strict():
        ours = function(*(x.to(device) for x in operands))
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    torch.testing.assert_close(ours.cpu(), theirs, **(tolerance or {"rtol": 1e-4, "atol": 1e-5}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("m,k", [(1, 1), (5, 7), (300, 513), (7, 0), (0, 7), (2, 20000), (20000, 3)])
def test_matrix_times_vector(device, m, k, dtype):
    a, x, y = random(m, k).to(dtype), random(k, seed=1).to(dtype), random(m, seed=2).to(dtype)
    close = {"rtol": 1e-4, "atol": 1e-3}
    assert_native(device, torch.mv, a, x, **close)
    assert_native(device, lambda a, x: a @ x, a, x, **close)
    assert_native(device, lambda a, x: x @ a.t(), a, x, **close)
    assert_native(device, lambda a, x: torch.mv(a.t().contiguous().t(), x), a, x, **close)
    assert_native(device, lambda y, a, x: torch.addmv(y, a, x, beta=0.5, alpha=2), y, a, x, **close)
    assert_native(device, lambda y, a, x: y.addmv_(a, x, beta=-1), y, a, x, **close)
    assert_native(device, lambda y, a, x: torch.addmv(y, a, x, out=torch.zeros_like(y)), y, a, x, **close)
    assert_native(device, lambda a, x: torch.mv(a, x[::2]), a, random(2 * k, seed=3)[: 2 * k].to(dtype), **close)


def test_row_vectors_times_matrices_in_every_layout(device):
    for k, n in ((512, 512), (3, 1000), (1000, 3), (65, 130), (2, 1), (8200, 9)):
        w, v, b = random(k, n), random(1, k, seed=1), random(n, seed=2)
        close = {"rtol": 1e-4, "atol": 1e-3}
        assert_native(device, lambda v, w: v @ w, v, w, **close)
        assert_native(device, lambda v, w: v @ w.t().contiguous().t(), v, w, **close)
        assert_native(device, lambda v, w: (w.t() @ v.t()), v, w, **close)
        assert_native(device, lambda b, v, w: torch.addmm(b, v, w, beta=2, alpha=0.5), b, v, w, **close)
        assert_native(device, lambda v, w: torch.bmm(v.expand(3, 1, -1), w.expand(3, -1, -1)), v, w, **close)


def test_not_a_number_is_ignored_with_beta_zero(device):
    y = torch.full((4,), float("nan"))
    assert_native(device, lambda y, a, x: torch.addmv(y, a, x, beta=0), y, random(4, 3), random(3))


def test_addmv_refuses_wrong_shapes_as_on_the_cpu(device):
    for shapes in (((4,), (4, 3), (4,)), ((5,), (4, 3), (3,))):
        with pytest.raises(RuntimeError, match="size mismatch|expand"):
            torch.addmv(*(random(*shape).to(device) for shape in shapes))


def test_vector_products(device):
    a, b = random(4, 3, 5), random(4, 3, 5, seed=1)
    assert_native(device, lambda a, b: torch.linalg.cross(a, b, dim=1), a, b)
    assert_native(device, lambda a, b: torch.cross(a, b, dim=-2), a, b)
    assert_native(device, lambda a, b: torch.linalg.cross(a, b[:1], dim=1), a, b)
    assert_native(device, lambda a, b: torch.linalg.cross(a, b, dim=1, out=torch.empty_like(a)), a, b)
    with pytest.raises(RuntimeError, match="must have length 3"):
        torch.linalg.cross(a.to(device), b.to(device), dim=0)


@pytest.mark.parametrize("p", [1, 2, 3.5, float("inf")])
def test_renorm(device, p):
    x = random(5, 6, 7)
    for dim in (0, 1, -1):
        assert_native(device, lambda x: torch.renorm(x, p, dim, 3.0), x)
        assert_native(device, lambda x: x.renorm_(p, dim, 3.0), x)


def test_the_older_spelling_of_norms(device):
    x = random(4, 5)
    norm = torch.ops.aten.norm
    for function in (
        lambda x: norm.Scalar(x, 1),
        lambda x: norm.ScalarOpt_dim(x, None, [0]),
        lambda x: norm.ScalarOpt_dim_dtype(x, 3, [1], True, dtype=torch.float64),
        lambda x: norm.out(x, 2, [1], out=torch.zeros(4, device=x.device)),
        lambda x: norm.ScalarOpt_dtype(x, 2, dtype=torch.float64),
    ):
        assert_native(device, function, x)


@pytest.mark.parametrize("p", [0, 1, 2, 2.5, float("inf")])
def test_distances(device, p):
    assert_native(device, lambda a, b: torch.cdist(a, b, p, "donot_use_mm_for_euclid_dist"), random(3, 4, 5), random(3, 6, 5, seed=1))
    assert_native(device, lambda a, b: torch.cdist(a, b, p, "donot_use_mm_for_euclid_dist"), random(40, 5), random(2, 1, 5, seed=1))
    assert_native(device, lambda a, b: torch.dist(a, b, p), random(3, 4), random(3, 4, seed=1))
