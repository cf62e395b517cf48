"""Identical training steps in lazy mode, and what each of them compiles and launches."""

import torch

from torch_backend import lazy

NAMES = ("compiled", "queued", "groups", "fused", "dropped", "common", "flushes")


def count(model, loss, steps, reads=False):
    """What each of so many steps adds to the counters; `reads`: each step reads its loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = []
    with lazy.record():
        before = lazy.metrics()
        for _ in range(steps):
            optimizer.zero_grad()
            value = loss(model)
            value.backward()
            optimizer.step()
            if reads:
                value.item()
            lazy.mark_step()
            del value
            now = lazy.metrics()
            found.append({name: now[name] - before[name] for name in NAMES})
            before = now
    return found


def check(model, loss, steps=7, reads=False):
    """From the third step on nothing is compiled, and all steps are launched alike. The first has no gradients and no state of the optimizer yet."""
    found = count(model, loss, steps, reads)
    text = "\n".join(map(str, found))
    assert not any(step["compiled"] for step in found[2:]), text
    assert all(step == found[2] for step in found[2:]), text
    assert found[2]["groups"] > 20, text
