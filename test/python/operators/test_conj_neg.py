"""Conjugate and negative views are lazy bits; each copy and operator applies them, and none recurses."""

import pytest
import torch


@pytest.fixture(params=[torch.complex64, torch.complex128], ids=str)
def pair(request, device):
    """The same complex numbers on the CPU and on the device."""
    x = torch.tensor([[1 + 2j, 3 - 4j, -5j], [0.5, -1 + 1j, 7 + 0j]], dtype=request.param)
    return x, x.to(device)


def test_resolve_conj(pair):
    theirs, ours = pair
    assert ours.conj().is_conj()
    assert ours.conj().resolve_conj().cpu().equal(theirs.conj().resolve_conj())
    assert not ours.conj().resolve_conj().is_conj()


def test_copies_of_conjugate_views(pair, device):
    theirs, ours = pair
    expected = theirs.conj().resolve_conj()
    assert ours.conj().cpu().resolve_conj().equal(expected)
    assert theirs.conj().to(device).resolve_conj().cpu().equal(expected)
    assert ours.conj().clone().cpu().resolve_conj().equal(expected)
    assert ours.conj().to(f"{device}:1").cpu().resolve_conj().equal(expected)
    assert ours.conj().t().contiguous().cpu().resolve_conj().equal(expected.t())
    assert torch.empty_like(theirs).copy_(ours.conj()).equal(expected)
    assert torch.empty_like(ours).copy_(theirs.conj()).cpu().equal(expected)


def test_copies_into_conjugate_views(pair, device):
    theirs, ours = pair
    for source in (ours, theirs):
        target = torch.zeros_like(ours)
        target.conj().copy_(source)
        assert target.cpu().equal(theirs.conj().resolve_conj())
    host = torch.zeros_like(theirs)
    host.conj().copy_(ours)
    assert host.equal(theirs.conj().resolve_conj())


def test_imaginary_part_of_a_conjugate_has_the_negative_bit(pair):
    theirs, ours = pair
    assert ours.conj().imag.is_neg()
    assert ours.conj().imag.resolve_neg().cpu().equal(theirs.conj().imag.resolve_neg())
    assert ours.conj().imag.cpu().resolve_neg().equal(theirs.conj().imag.resolve_neg())
    assert ours.conj().imag.clone().cpu().resolve_neg().equal(theirs.conj().imag.resolve_neg())
    assert ours.conj().imag.to(torch.float16).cpu().equal(theirs.conj().imag.to(torch.float16))


def test_real_part_and_view_as_real(pair):
    theirs, ours = pair
    assert ours.conj().real.cpu().equal(theirs.real)
    assert torch.view_as_real(ours).cpu().equal(torch.view_as_real(theirs))


def test_arithmetic(pair):
    theirs, ours = pair
    torch.testing.assert_close((ours * ours.conj()).cpu(), theirs * theirs.conj())
    torch.testing.assert_close((ours.conj() + 1).cpu(), theirs.conj() + 1)
    torch.testing.assert_close((ours.conj() @ ours.mT).cpu(), theirs.conj() @ theirs.mT)
    torch.testing.assert_close(ours.conj().abs().cpu(), theirs.abs())
    torch.testing.assert_close(ours.conj().imag.cumsum(0).cpu(), theirs.conj().imag.cumsum(0))
    assert ours.conj()[0, 1].item() == (3 + 4j)
    assert ours.conj().imag[0, 0].item() == -2


def test_in_place_on_views(pair):
    theirs, ours = pair[0].clone(), pair[1].clone()
    for x in (theirs, ours):
        x.conj().mul_(2j)
        x.conj().imag.fill_(3)
        x.conj().imag[0].zero_()
    assert ours.cpu().equal(theirs)


def test_conversion_of_conjugate_views(pair):
    theirs, ours = pair
    for dtype in (torch.complex64, torch.complex128):
        assert ours.conj().to(dtype).cpu().resolve_conj().equal(theirs.conj().to(dtype).resolve_conj())


def test_printing_and_comparison(pair):
    theirs, ours = pair
    assert str(ours.tolist()) == str(theirs.tolist())
    assert repr(theirs)[7:].split("dtype")[0].rstrip(") ,\n") in repr(ours)
    assert torch.allclose(ours.conj(), ours.conj())
    assert ours.isfinite().all()


def test_gradients_of_complex_functions(device):
    x = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    y = x.detach().to(device).requires_grad_()
    for z in (x, y):
        (z * z.conj()).real.sum().backward()
    assert y.grad.cpu().equal(x.grad)
