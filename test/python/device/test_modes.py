"""The asynchronous and the inline mode of the fake device produce equal bits."""

PROGRAM = """
import hashlib, io, torch
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 10)).to("fake")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(5):
    x = torch.randn(32, 1, 8, 8, device="fake")
    y = (torch.rand(32, device="fake") * 10).long()
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y) + torch.bernoulli(torch.full((100,), 0.3, device="fake")).mean()
    loss.backward()
    optimizer.step()
digest = hashlib.sha256(str(loss.item()).encode())
for parameter in model.parameters():
    digest.update(parameter.detach().cpu().numpy().tobytes())
print(digest.hexdigest())
"""


def test_training_has_equal_bits_in_both_modes_and_with_jitter(run_python):
    def digest_of(**settings):
        """Trains a network in a separate process; returns a digest of its loss and parameters."""
        return run_python(PROGRAM, TORCH_BACKEND="fake", **settings).stdout.strip()

    inline = digest_of(HAL_FAKE_ASYNC="0")
    assert len(inline) == 64
    assert digest_of(HAL_FAKE_ASYNC="1") == inline
    assert digest_of(HAL_FAKE_ASYNC="1", HAL_FAKE_DELAY="200") == inline
