"""torch.library.opcheck checks the registration of gradients of custom operators on the device."""

import pytest
import torch


def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


@pytest.fixture(scope="module")
def library():
    with torch.library._scoped_library("opcheck_test", "FRAGMENT") as library:
        yield library


def check(operator, device, **options):
    return torch.library.opcheck(operator, (torch.randn(3, device=device, **options), 2.0), test_utils="test_autograd_registration")


def test_gradients_at_an_autograd_key(device):
    operator = torch.library.custom_op("opcheck_test::with_formula", scaled, mutates_args=())
    operator.register_autograd(lambda ctx, grad: (grad * ctx.factor, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]))
    assert check(operator, device, requires_grad=True)["test_autograd_registration"] == "SUCCESS"


def test_a_kernel_without_gradients(device, library):
    library.define("detached(Tensor x, float factor) -> Tensor")
    library.impl("detached", lambda x, factor: x.detach() * factor, "PrivateUse1")
    assert check(torch.ops.opcheck_test.detached.default, device, requires_grad=True)["test_autograd_registration"] == "SUCCESS"


def test_gradients_in_the_devices_kernel_are_found(device, library):
    library.define("in_kernel(Tensor x, float factor) -> Tensor")

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            return x.detach() * factor

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    library.impl("in_kernel", Scale.apply, "PrivateUse1")
    with pytest.raises(Exception, match="opcheck_test::in_kernel: a result requires a gradient"):
        check(torch.ops.opcheck_test.in_kernel.default, device, requires_grad=True)
