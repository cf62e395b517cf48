"""HAL_LAYERS: PyTorch's calls of a plugin produce no report of the validate layer, alone and with the other layers."""

import pytest

TRAINING = """
import torch, torch_backend
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 3)).to("fake:1")
optimizer = torch.optim.Adam(net.parameters())
start, end = (torch.fake.Event(enable_timing=True) for _ in range(2))
for _ in range(3):
    optimizer.zero_grad()
    inputs, labels = torch.randn(4, 8).to("fake:1"), torch.randint(0, 3, (4,), device="fake:1")
    start.record(torch.fake.current_stream("fake:1"))
    loss = torch.nn.functional.cross_entropy(net(inputs), labels)
    loss.backward()
    optimizer.step()
    end.record(torch.fake.current_stream("fake:1"))
stream = torch.fake.Stream("fake:1")
stream.wait_stream(torch.fake.current_stream("fake:1"))
with torch.fake.stream(stream):  # a fallback, a generator, memory of another stream
    other = torch.linalg.inv(torch.eye(3, device="fake:1")) + torch.rand(3, 3, device="fake:1")
    inputs.record_stream(stream)
del inputs
moved = torch.randn(1000, device="fake:0").to("fake:1")
torch.fake.synchronize(1)
assert start.elapsed_time(end) >= 0 and moved.sum().isfinite() and other.sum().item() > 0
print("loss", loss.item())
"""


@pytest.mark.parametrize("layers, asynchronous", [("validate", 0), ("validate", 1), ("validate,trace,fault", 1)])
def test_a_training_step_is_clean_under_the_layers(run_python, layers, asynchronous):
    settings = {"TORCH_BACKEND": "fake", "HAL_FAKE_DEVICES": 2, "HAL_FAKE_ASYNC": asynchronous}
    plain = run_python(TRAINING, **settings)
    done = run_python(TRAINING, HAL_LAYERS=layers, **settings)
    assert done.stdout == plain.stdout  # the layers change no result
    assert "validate: " not in done.stderr
    assert ("trace: fake.kernel_launch -> OK" in done.stderr) == ("trace" in layers)


def test_an_injected_failure_is_pytorchs_exception_and_the_layer_has_no_remark(run_python):
    done = run_python(
        """
        import torch, torch_backend
        try:
            torch.ones(4, device="fake") + torch.ones(4, device="fake")
        except RuntimeError as error:
            assert "failed on purpose (HAL_FAULT)" in str(error), error
        else:
            raise SystemExit("no failure")
        assert torch.ones(4, device="fake").sum().item() == 4
        """,
        TORCH_BACKEND="fake",
        HAL_LAYERS="validate,fault",
        HAL_FAULT="kernel_launch:1:INTERNAL",
    )
    assert "validate: " not in done.stderr
