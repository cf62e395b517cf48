"""Identical steps of lazy mode have identical programs from the third step on, wherever the allocator places their
tensors."""

from pathlib import Path

import pytest

SCRIPT = f"""
import sys
sys.path.append({str(Path(__file__).parents[1])!r})
import random, torch, models, repeated_steps
torch.manual_seed(0)
"""

DECODER = SCRIPT + """
for width, heads, groups, layers, reads in ((64, 4, 2, 3, False), (48, 4, 1, 3, True)):
    model = models.Decoder(width, heads, groups, layers).to("fake")
    batch = [part.to("fake") for part in models.batches("decoder", 1, 2)[0]]
    repeated_steps.check(model, lambda model: model.loss(batch), reads=reads)
"""

# A random delay makes the device idle at different points; blocks of random sizes move later allocations.
MOVED = SCRIPT + """
model, ballast = models.Decoder(layers=2).to("fake"), []
batch = [part.to("fake") for part in models.batches("decoder", 1, 2)[0]]
def loss(model):
    random.shuffle(ballast)
    del ballast[len(ballast) // 2 :]
    ballast.extend(torch.empty(random.choice((100, 1000, 4000, 20000, 300000)), device="fake") for _ in range(20))
    return model.loss(batch)
repeated_steps.check(model, loss, steps=10)
"""


@pytest.mark.parametrize("settings", [{"HAL_FAKE_ASYNC": 1}, {"HAL_FAKE_ASYNC": 0}], ids=["asynchronous", "inline"])
def test_a_decoder_compiles_nothing_from_the_third_step_on(settings, run_python):
    run_python(DECODER, TORCH_BACKEND="fake", **settings)


@pytest.mark.parametrize("settings", [{"HAL_FAKE_ASYNC": 1, "HAL_FAKE_DELAY": 50}, {"HAL_FAKE_ASYNC": 0}], ids=["asynchronous", "inline"])
def test_steps_whose_memory_moves_are_the_same_programs(settings, run_python):
    run_python(MOVED, TORCH_BACKEND="fake", **settings)
