"""torch.onnx.export of models on the device: the file is that of the model on the CPU, for onnxruntime, too."""

import pytest
import torch
from torch import nn

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: make test-integrations")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: make test-integrations")


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm, self.output = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 8).view(1, 8, 1, 1))

    def forward(self, x):
        return self.output((torch.relu(self.norm(self.convolution(x))) * self.scale).mean((2, 3)))


class Tokens(nn.Module):
    """Creates tensors on the device of its input."""

    def __init__(self):
        super().__init__()
        self.embedding, self.output = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, x):
        count = x.shape[1]
        mask = torch.ones(count, count, dtype=torch.bool, device=x.device).triu(1)
        positions = torch.arange(count, device=x.device)[None, :, None] * 0.01
        return self.output(self.layer(self.embedding(x) + positions, src_mask=mask))


def operators(program):
    return [node.op_type for node in program.model.graph]


@pytest.mark.parametrize("make, batch", [(Images, 2), (Images, 5), (Tokens, 2)], ids=["images", "another batch", "tokens"])
def test_an_exported_model(device, tmp_path, make, batch):
    torch.manual_seed(0)
    model = make().eval()
    example = torch.randn(2, 3, 8, 8) if make is Images else torch.randint(0, 20, (2, 7))
    given = torch.randn(batch, 3, 8, 8) if make is Images else example
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},) if make is Images else None
    with torch.no_grad():
        expected = model(given)
    reference = torch.onnx.export(model, (example,), dynamo=True, verbose=False, dynamic_shapes=shapes)
    program = torch.onnx.export(model.to(device), (example.to(device),), dynamo=True, verbose=False, dynamic_shapes=shapes)
    assert operators(program) == operators(reference)
    assert {parameter.device.type for parameter in model.parameters()} == {device}, "the model has not moved"
    program.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    result = session.run(None, {session.get_inputs()[0].name: given.numpy()})[0]
    torch.testing.assert_close(torch.from_numpy(result), expected, rtol=1e-4, atol=1e-5)
