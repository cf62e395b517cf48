"""The networks that the model tests and the model benchmark train: each a module with `loss(batch)`, and `batches(name,
count)` of host tensors. They are small, with the structure of common large models."""

import codecs
import contextlib
import io

import torch
from torch import nn
from torch.nn import functional as F

from torch_backend import demo

CONTEXT, VOCABULARY = 32, 128


class Residual(nn.Module):
    """Two convolutions with batch norms and a shortcut, which has its own convolution if the shape changes."""

    def __init__(self, inner, outer, stride):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(inplace=True))
        self.second = nn.Sequential(nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer))
        same = inner == outer and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        return F.relu(self.second(self.first(x)) + self.shortcut(x))


class ResNet(nn.Module):
    """Stem, max pool, three stages of residual blocks, average pool, classes."""

    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.stages = nn.Sequential(Residual(width, width, 1), Residual(width, 2 * width, 2), Residual(2 * width, 4 * width, 2))
        self.head = nn.Linear(4 * width, 10)

    def loss(self, batch):
        images, classes = batch
        return F.cross_entropy(self.head(F.adaptive_avg_pool2d(self.stages(self.stem(images)), 1).flatten(1)), classes)


class LSTM(nn.Module):
    """A language model: embedding, two recurrent layers with dropout off, a projection."""

    def __init__(self, width=64):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def loss(self, batch):
        tokens, following = batch
        return F.cross_entropy(self.head(self.layers(self.embedding(tokens))[0]).flatten(0, 1), following.flatten())


class Attention(nn.Module):
    """Causal self-attention over several heads, by scaled_dot_product_attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.project, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention, self.norm1, self.norm2 = Attention(width, heads), nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """A language model with the structure of GPT-2: learned positions, blocks with norms first, one weight for tokens
    in and out."""

    def __init__(self, width=64, heads=4, layers=2):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def loss(self, batch):
        tokens, following = batch
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return F.cross_entropy(F.linear(self.norm(self.blocks(x)), self.embedding.weight).flatten(0, 1), following.flatten())


class RMSNorm(nn.Module):
    """A root mean square norm of single operators, as in language models."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class GroupedAttention(nn.Module):
    """Causal attention with rotary positions, in which several heads share keys and values."""

    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))

    def rotate(self, x, cos, sin):
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat((-high, low), -1) * sin

    def forward(self, x, cos, sin):
        q = self.rotate(self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2), cos, sin)
        k = self.rotate(self.k(x).unflatten(-1, (self.groups, -1)).transpose(1, 2), cos, sin)
        v = self.v(x).unflatten(-1, (self.groups, -1)).transpose(1, 2)
        k, v = (part.repeat_interleave(self.heads // self.groups, 1) for part in (k, v))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class DecoderLayer(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.attention, self.norm1, self.norm2 = GroupedAttention(width, heads, groups), RMSNorm(width), RMSNorm(width)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """A language model with the structure of Llama: RMS norms, rotary positions, grouped attention, SwiGLU. Trained by
    tests that compare its steps."""

    def __init__(self, width=64, heads=4, groups=2, layers=3):
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCABULARY, width), nn.Linear(width, VOCABULARY, bias=False)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, groups) for _ in range(layers))
        self.norm = RMSNorm(width)
        size = width // heads
        self.register_buffer("frequencies", 10000 ** (-torch.arange(0, size, 2) / size))

    def loss(self, batch):
        tokens, following = batch
        x = self.embedding(tokens)
        angles = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(1) * self.frequencies
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos(), angles.sin()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), following.flatten())


class VAE(nn.Module):
    """A variational autoencoder; the noise of its samples is part of the batch, so that both sides use the same."""

    def __init__(self, width=32, latent=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, width, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(width * 64, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, width * 64), nn.ReLU(), nn.Unflatten(1, (width, 8, 8)),
                                     nn.ConvTranspose2d(width, 1, 4, 2, 1))  # fmt: skip

    def loss(self, batch):
        images, noise = batch
        mean, logarithm = self.encoder(images).chunk(2, 1)
        rebuilt = self.decoder(mean + noise * torch.exp(0.5 * logarithm))
        divergence = -0.5 * (1 + logarithm - mean.square() - logarithm.exp()).sum(1).mean()
        return F.binary_cross_entropy_with_logits(rebuilt, images, reduction="none").sum((1, 2, 3)).mean() / 256 + divergence / 256


class Digits(nn.Module):
    """The network of the demo, for handwritten digits."""

    def __init__(self):
        super().__init__()
        self.network = demo.build_network(torch)

    def loss(self, batch):
        images, classes = batch
        return F.cross_entropy(self.network(images), classes)


MODELS = {"digits": Digits, "resnet": ResNet, "lstm": LSTM, "transformer": Transformer, "vae": VAE}


def _text():
    """Text that ships with Python: the Zen."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13")


def batches(name, count, size=8):
    """`count` batches of host tensors for a model, the same in each process."""
    generator = torch.Generator().manual_seed(0)
    result = []
    text = torch.tensor([ord(letter) for letter in _text() if ord(letter) < VOCABULARY])
    if name == "digits":
        images, classes, *_ = demo.load_data(torch, seed=0)
        images = (images - images.mean()) / images.std()
        return list(zip(images.split(4 * size)[:count], classes.split(4 * size)[:count]))
    for _ in range(count):
        if name == "resnet":
            classes = torch.randint(10, (size,), generator=generator)
            images = torch.randn(size, 3, 32, 32, generator=generator) + classes.view(-1, 1, 1, 1) / 5
            result.append((images, classes))
        elif name == "vae":
            result.append((torch.rand(size, 1, 16, 16, generator=generator).round(), torch.randn(size, 8, generator=generator)))
        else:
            starts = torch.randint(len(text) - CONTEXT - 1, (size,), generator=generator)
            places = starts.unsqueeze(1) + torch.arange(CONTEXT)
            result.append((text[places], text[places + 1]))
    return result
