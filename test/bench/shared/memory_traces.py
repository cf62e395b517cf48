"""memory_traces.py: programs that train or run small models on the device while the allocator is recorded.

    memory_traces.py NAME FILE

Runs one program (PROGRAMS) and writes its snapshot. `memory_replay.py` runs all of them and replays the traces.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional

DEVICE = None  # set by main


class Block(nn.Module):
    """A transformer's block."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, cache=None):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if cache is not None:
            cache[:] = [torch.cat([old, new], 2) if old is not None else new for old, new in zip(cache, (k, v))]
            k, v = cache
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.second(x))


class Transformer(nn.Module):
    """Blocks with an embedding and a classifier."""

    def __init__(self, width=192, heads=4, depth=3, words=2000):
        super().__init__()
        self.embedding, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))

    def forward(self, tokens, caches=None):
        x = self.embedding(tokens)
        for index, block in enumerate(self.blocks):
            x = block(x, caches[index] if caches else None)
        return self.head(x)


class Residual(nn.Module):
    """ResNet's basic block."""

    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
                                  nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))  # fmt: skip

    def forward(self, x):
        return torch.relu(x + self.body(x))


def residual_network():
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), Residual(32), nn.Conv2d(32, 64, 3, stride=2, padding=1), Residual(64), Residual(64),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))  # fmt: skip


def perceptron(width=1200):
    return nn.Sequential(nn.Linear(300, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def lengths(count, low, high, seed=0):
    """Sequence lengths that vary as those of sentences do."""
    generator = torch.Generator().manual_seed(seed)
    return (low + (high - low) * torch.rand(count, generator=generator) ** 2).int().tolist()


def step(model, optimizer, loss):
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def tokens(batch, length):
    return torch.randint(0, 2000, (batch, length)).to(DEVICE)


def language_loss(model, batch):
    return functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


# ---- programs ----


def mlp():
    model = perceptron().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(12):
        x = torch.randn(512, 300).to(DEVICE)
        step(model, optimizer, functional.cross_entropy(model(x), torch.arange(512).to(DEVICE) % 10))


def mlp_last_batch():
    """The last batch of each epoch is smaller."""
    model = perceptron().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for rows in 3 * (1024, 1024, 1024, 333):
        x = torch.randn(rows, 300).to(DEVICE)
        step(model, optimizer, model(x).square().mean())


def images():
    model = residual_network().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for _ in range(6):
        x = torch.randn(16, 3, 32, 32).to(DEVICE)
        step(model, optimizer, functional.cross_entropy(model(x), torch.arange(16).to(DEVICE) % 10))


def image_sizes():
    """Images of different sizes, as with multi-scale training."""
    model = residual_network().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for size in (32, 48, 40, 56, 24, 64, 44, 52, 36, 60):
        x = torch.randn(8, 3, size, size).to(DEVICE)
        step(model, optimizer, model(x).square().mean())


def transformer():
    model = Transformer().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(5):
        step(model, optimizer, language_loss(model, tokens(4, 129)))


def sequence_lengths():
    model = Transformer().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for length in lengths(14, 20, 300):
        step(model, optimizer, language_loss(model, tokens(4, length)))


def generation():
    """Prompts of different lengths, and a cache of keys and values that grows by one token per step."""
    model = Transformer().to(DEVICE).eval()
    with torch.no_grad():
        for length in lengths(5, 60, 400, 1):
            caches = [[None, None] for _ in model.blocks]
            model(tokens(16, length), caches)
            for _ in range(24):
                model(tokens(16, 1), caches)


def accumulation():
    """Gradients of several batches, then one step of the optimizer."""
    model = Transformer().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for index, length in enumerate(lengths(12, 30, 200, 2)):
        (language_loss(model, tokens(3, length)) / 4).backward()
        if index % 4 == 3:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def evaluation():
    """Training with an evaluation of larger batches, which keeps its outputs, in between."""
    model = Transformer().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(3):
        for length in lengths(3, 40, 160, epoch):
            step(model, optimizer, language_loss(model, tokens(4, length)))
        with torch.no_grad():
            kept = [model(tokens(8, length)).softmax(-1) for length in lengths(3, 40, 160, 10 + epoch)]
        del kept


def autocast():
    """Training in bfloat16 with checkpoints of the loss and two optimizers in turn."""
    generator, critic = perceptron(900).to(DEVICE), perceptron(700).to(DEVICE)
    optimizers = [torch.optim.AdamW(model.parameters()) for model in (generator, critic)]
    history = []
    for rows in lengths(10, 100, 1500, 3):
        for model, optimizer in zip((generator, critic), optimizers):
            with torch.autocast(torch.device(DEVICE).type, torch.bfloat16):
                outputs = model(torch.randn(rows, 300).to(DEVICE))
            history.append(outputs.detach().float())
            step(model, optimizer, outputs.float().square().mean())
        history = history[-6:]


PROGRAMS = {function.__name__: function for function in
            (mlp, mlp_last_batch, images, image_sizes, transformer, sequence_lengths, generation, accumulation, evaluation, autocast)}  # fmt: skip


def main():
    global DEVICE
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", choices=PROGRAMS, help=f"one of {', '.join(PROGRAMS)}")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--device", default="fake")
    arguments = parser.parse_args()
    import torch_backend

    torch_backend.use(arguments.device)
    DEVICE = torch_backend.device_name()
    torch.manual_seed(0)
    memory = torch.get_device_module(DEVICE).memory
    memory._record_memory_history(context=None, max_entries=1_000_000)
    PROGRAMS[arguments.name]()
    memory._dump_snapshot(arguments.file)


if __name__ == "__main__":
    main()
