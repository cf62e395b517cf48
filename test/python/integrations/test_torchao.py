"""torchao: linear layers with weights of 4 and 8 bits compute as on the CPU, or as with the weights that they stand for."""

import copy

import pytest
import torch

pytest.importorskip("torchao", reason="torchao is not installed: make test-integrations")
from torchao import quantization

# All but the formats of 4 bits: the CPU has no such linear layer.
AS_ON_THE_CPU = {
    "int8 weights": quantization.Int8WeightOnlyConfig(),
    "int8 dynamic": quantization.Int8DynamicActivationInt8WeightConfig(),
    "int8 dynamic, intx weights": quantization.Int8DynamicActivationIntxWeightConfig(),
    "intx weights": quantization.IntxWeightOnlyConfig(),
    "float8 weights": quantization.Float8WeightOnlyConfig(),
    "float8 dynamic": quantization.Float8DynamicActivationFloat8WeightConfig(),
    "float8 dynamic, rows": quantization.Float8DynamicActivationFloat8WeightConfig(granularity=quantization.PerRow()),
}
INT4 = quantization.Int4WeightOnlyConfig(group_size=32, int4_packing_format="plain_int32")


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(256, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).bfloat16()


def quantized(config, device):
    net = network().to(device)
    quantization.quantize_(net, copy.deepcopy(config))
    return net


@pytest.mark.parametrize("config", AS_ON_THE_CPU.values(), ids=AS_ON_THE_CPU)
@pytest.mark.parametrize("rows", [1, 32])
@torch.no_grad()
def test_quantized_layers_compute_as_on_the_cpu(device, native, config, rows):
    x = torch.randn(rows, 256).bfloat16()
    expected, net = quantized(config, "cpu")(x), quantized(config, device)
    with native():
        result = net(x.to(device))
    torch.testing.assert_close(result.cpu(), expected, rtol=2**-6, atol=2**-8)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(256,), (5, 256), (2, 3, 256)])
@pytest.mark.parametrize("granularity", [quantization.PerRow(), quantization.PerTensor()], ids=str)
def test_weights_of_eight_bits_are_read_by_their_operator(device, granularity, shape, bias):
    """The reference is double precision with the numbers that the weights stand for."""
    import torch_backend

    layer, x = torch.nn.Linear(256, 128, bias=bias).to(device), torch.randn(shape)
    quantization.quantize_(layer, quantization.Int8WeightOnlyConfig(granularity=granularity))
    weight = layer.weight.qdata.cpu().double() * layer.weight.scale.cpu().double()
    expected = torch.nn.functional.linear(x.double(), weight, layer.bias.cpu().double() if bias else None)
    torch_backend.ops.reset()
    with torch.no_grad():
        torch.testing.assert_close(layer(x.to(device)).cpu().double(), expected, rtol=1e-5, atol=1e-4)
    assert {row.op: row.native for row in torch_backend.ops.report()}.get("_packed_weight_mm") == 1
    ours = x.to(device).requires_grad_()
    layer(ours).sum().backward()
    torch.testing.assert_close(ours.grad.cpu().double(), weight.sum(0).expand(shape), rtol=1e-4, atol=1e-4)


def of_four_bits(packed):
    """Returns the weight that a tensor of torchao represents, in float32, and half the distance of neighbors."""
    data, group = packed.qdata.cpu().view(torch.uint8), packed.block_size[1]
    whole = torch.stack([data & 15, data >> 4], 2).reshape(packed.shape).float()
    scale, zero = (numbers.cpu().float().t().repeat_interleave(group, 1) for numbers in (packed.scale, packed.zero_point))
    return (whole - zero) * scale, scale / 2


@pytest.mark.parametrize("rows", [1, 32])
@torch.no_grad()
def test_weights_of_four_bits(device, native, rows):
    x, net, reference = torch.randn(rows, 256).bfloat16(), quantized(INT4, device), network().float()
    for layer, ours in ((reference[0], net[0]), (reference[2], net[2])):
        assert type(ours.weight).__name__ == "Int4PlainInt32Tensor" and ours.weight.qdata.numel() * 8 == layer.weight.numel()
        weight, half = of_four_bits(ours.weight)
        assert bool(((weight - layer.weight).abs() <= half * 1.3).all())  # bfloat16 rounds the quotients
        layer.weight.copy_(weight)
    with native():
        result = net(x.to(device))
    torch.testing.assert_close(result.cpu().float(), reference(x.float()), rtol=2**-6, atol=2**-7)


@pytest.mark.parametrize("config", [INT4, AS_ON_THE_CPU["int8 weights"], AS_ON_THE_CPU["float8 dynamic"]], ids=["int4", "int8", "float8"])
@torch.no_grad()
def test_a_compiled_quantized_network(device, config):
    x, net = torch.randn(8, 256).bfloat16().to(device), quantized(config, device)
    expected = net(x)
    torch.testing.assert_close(torch.compile(net)(x), expected, rtol=2**-5, atol=2**-4)  # roundings to 8 bits differ


@torch.no_grad()
def test_saved_and_loaded(device, tmp_path):
    x, net = torch.randn(8, 256).bfloat16().to(device), quantized(INT4, device)
    torch.save(net.state_dict(), tmp_path / "net.pt")
    loaded = network().to(device)
    loaded.load_state_dict(torch.load(tmp_path / "net.pt", weights_only=False), assign=True)
    assert torch.equal(loaded(x), net(x)) and loaded[0].weight.device.type == device


def test_without_the_integration_the_formats_are_refused(device):
    from torch_backend import integrations

    integrations.disable("torchao")
    try:
        with pytest.raises(NotImplementedError, match=f"does not support device '{device}'"):
            quantized(INT4, device)
        with pytest.raises(AssertionError, match="Float8 dynamic quantization requires"):
            quantized(AS_ON_THE_CPU["float8 dynamic"], device)
    finally:
        integrations.enable("torchao")
    quantized(INT4, device)
