"""The models of suite.py, by name: functions that create a module and its inputs. They are small, with the structure of
common models. Those of transformers need that package."""

import importlib.util

import torch
from torch import nn
from torch.nn import functional as F

QUICK = ("mlp", "resnet", "mobilenet", "gpt", "lstm", "dlrm")
MODELS = {}


def model(function):
    MODELS[function.__name__] = function
    return function


class Chain(nn.Module):
    """Adds or concatenates the result of a module to its input."""

    def __init__(self, inner, shortcut=None, join="add"):
        super().__init__()
        self.inner, self.shortcut, self.join = inner, shortcut or nn.Identity(), join

    def forward(self, x):
        first, second = self.shortcut(x), self.inner(x)
        return first + second if self.join == "add" else torch.cat([first, second], 1)


def conv(inner, outer, size=3, stride=1, groups=1, activation=nn.ReLU):
    return nn.Sequential(nn.Conv2d(inner, outer, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outer), activation())


def classifier(width, *stages):
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def images(batch=8, size=32, channels=3):
    return (torch.randn(batch, channels, size, size),)


def tokens(batch=4, length=32, count=256):
    return (torch.randint(count, (batch, length)),)


# ---- images ----
@model
def mlp():
    return nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)), (torch.randn(64, 128),)


@model
def vgg():
    pool = nn.MaxPool2d(2)
    return classifier(64, conv(3, 16), conv(16, 16), pool, conv(16, 32), conv(32, 32), pool, conv(32, 64), conv(64, 64), pool), images()


def bottleneck(inner, outer, stride=1, groups=1):
    body = nn.Sequential(conv(inner, outer // 2, 1), conv(outer // 2, outer // 2, 3, stride, groups), conv(outer // 2, outer, 1))
    return Chain(body, nn.Identity() if inner == outer and stride == 1 else conv(inner, outer, 1, stride))


@model
def resnet():
    return classifier(64, conv(3, 16), bottleneck(16, 32), bottleneck(32, 32), bottleneck(32, 64, 2), bottleneck(64, 64)), images()


@model
def resnext():
    return classifier(64, conv(3, 16), bottleneck(16, 32, 1, 4), bottleneck(32, 64, 2, 4), bottleneck(64, 64, 1, 4)), images()


@model
def mobilenet():
    def block(inner, outer, stride):
        body = nn.Sequential(conv(inner, 4 * inner, 1, activation=nn.ReLU6), conv(4 * inner, 4 * inner, 3, stride, 4 * inner, nn.ReLU6),
                             nn.Conv2d(4 * inner, outer, 1), nn.BatchNorm2d(outer))  # fmt: skip
        return Chain(body) if inner == outer and stride == 1 else body

    return classifier(32, conv(3, 16, 3, 2), block(16, 16, 1), block(16, 24, 2), block(24, 24, 1), block(24, 32, 2)), images()


@model
def efficientnet():
    class Squeeze(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // 4, 1), nn.SiLU(), nn.Conv2d(width // 4, width, 1), nn.Sigmoid())

        def forward(self, x):
            return x * self.gate(x)

    def block(width):
        return Chain(nn.Sequential(conv(width, 2 * width, 1, activation=nn.SiLU), conv(2 * width, 2 * width, 3, 1, 2 * width, nn.SiLU), Squeeze(2 * width),
                                   nn.Conv2d(2 * width, width, 1), nn.BatchNorm2d(width)))  # fmt: skip

    return classifier(32, conv(3, 16, 3, 2, activation=nn.SiLU), block(16), conv(16, 32, 3, 2, activation=nn.SiLU), block(32)), images()


@model
def densenet():
    stages = [conv(3, 16)]
    for i in range(4):
        stages.append(Chain(conv(16 + 12 * i, 12), join="cat"))
    return classifier(64, *stages, nn.AvgPool2d(2)), images()


@model
def squeezenet():
    class Fire(nn.Module):
        def __init__(self, inner, outer):
            super().__init__()
            self.squeeze, self.one, self.three = nn.Conv2d(inner, 8, 1), nn.Conv2d(8, outer, 1), nn.Conv2d(8, outer, 3, padding=1)

        def forward(self, x):
            x = F.relu(self.squeeze(x))
            return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)

    return classifier(64, nn.Conv2d(3, 16, 3, 2), nn.ReLU(), Fire(16, 16), Fire(32, 16), nn.MaxPool2d(2), Fire(32, 32)), images()


@model
def convnext():
    class Norm(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm = nn.LayerNorm(width)

        def forward(self, x):
            return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def block(width):
        return Chain(nn.Sequential(nn.Conv2d(width, width, 7, padding=3, groups=width), Norm(width), nn.Conv2d(width, 4 * width, 1), nn.GELU(),
                                   nn.Conv2d(4 * width, width, 1)))  # fmt: skip

    return classifier(32, nn.Conv2d(3, 32, 4, 4), Norm(32), block(32), block(32)), images()


@model
def unet():
    class Level(nn.Module):
        def __init__(self, width, inner=None):
            super().__init__()
            self.down, self.inner, self.up = conv(width, width), inner, conv(2 * width if inner else width, width)
            if inner:
                self.narrow, self.wide = nn.Conv2d(width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)

        def forward(self, x):
            x = self.down(x)
            return self.up(torch.cat([x, self.wide(self.inner(self.narrow(x)))], 1) if self.inner else x)

    return nn.Sequential(nn.Conv2d(3, 8, 1), Level(8, Level(16, Level(32))), nn.Conv2d(8, 2, 1)), images()


@model
def generator():
    def up(inner, outer):
        return nn.Sequential(nn.ConvTranspose2d(inner, outer, 4, 2, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU())

    return nn.Sequential(nn.Unflatten(1, (64, 1, 1)), nn.ConvTranspose2d(64, 64, 4), up(64, 32), up(32, 16), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh()), (
        torch.randn(8, 64),
    )


@model
def discriminator():
    stages = [nn.Sequential(nn.Conv2d(a, b, 4, 2, 1), nn.GroupNorm(4, b), nn.LeakyReLU(0.2)) for a, b in ((3, 16), (16, 32), (32, 64))]
    return nn.Sequential(*stages, nn.Flatten(), nn.Linear(64 * 16, 1)), images()


@model
def autoencoder():
    sizes = (784, 256, 64, 16, 64, 256, 784)
    return nn.Sequential(*(part for pair in zip(sizes, sizes[1:]) for part in (nn.Linear(*pair), nn.ELU()))), (torch.randn(32, 784),)


@model
def siren():
    class Sine(nn.Module):
        def forward(self, x):
            return (30 * x).sin()

    return nn.Sequential(nn.Linear(2, 64), Sine(), nn.Linear(64, 64), Sine(), nn.Linear(64, 64), Sine(), nn.Linear(64, 3)), (torch.rand(1024, 2),)


# ---- detection ----
@model
def detection_heads():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.two, self.three = conv(3, 16, 3, 2), conv(16, 32, 3, 2), conv(32, 64, 3, 2)
            self.lateral = nn.ModuleList(nn.Conv2d(width, 32, 1) for width in (16, 32, 64))
            self.classes, self.boxes = nn.Conv2d(32, 3 * 10, 3, padding=1), nn.Conv2d(32, 3 * 4, 3, padding=1)

        def forward(self, x):
            levels = [self.stem(x)]
            levels += [self.two(levels[0])]
            levels += [self.three(levels[1])]
            top, results = 0, []
            for lateral, level in reversed(list(zip(self.lateral, levels))):
                here = lateral(level)
                top = here + (F.interpolate(top, scale_factor=2.0) if isinstance(top, torch.Tensor) else 0)
                results += [self.classes(top).flatten(2).sigmoid(), self.boxes(top).flatten(2).exp()]
            return torch.cat(results[::2], 2), torch.cat(results[1::2], 2)

    return Heads(), images(2, 64)


# ---- transformers ----
@model
def vit():
    class ViT(nn.Module):
        def __init__(self, width=64):
            super().__init__()
            self.patches, self.places = nn.Conv2d(3, width, 8, 8), nn.Parameter(torch.zeros(1, 17, width))
            self.first = nn.Parameter(torch.zeros(1, 1, width))
            self.layers = nn.Sequential(*(nn.TransformerEncoderLayer(width, 4, 128, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(3)))
            self.head = nn.Linear(width, 10)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
            return self.head(self.layers(x)[:, 0])

    return ViT(), images()


@model
def mixer():
    class Swap(nn.Module):
        def forward(self, x):
            return x.transpose(1, 2)

    class Transposed(nn.Sequential):
        def forward(self, x):
            return super().forward(x.transpose(1, 2)).transpose(1, 2)

    def layers(width):
        return nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)

    blocks = [part for _ in range(3) for part in (Chain(nn.Sequential(nn.LayerNorm(64), Transposed(*layers(16)))), Chain(nn.Sequential(nn.LayerNorm(64), *layers(64))))]
    return nn.Sequential(nn.Conv2d(3, 64, 8, 8), nn.Flatten(2), Swap(), *blocks), images()


@model
def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True), 2, enable_nested_tensor=False), (torch.randn(8, 32, 64),)


@model
def translation():
    return nn.Transformer(64, 4, 2, 2, 128, 0.0, batch_first=True), (torch.randn(4, 24, 64), torch.randn(4, 16, 64))


class Causal(nn.Module):
    """A decoder layer; `modern` has root mean square norms and a gated product."""

    def __init__(self, width, heads, modern):
        super().__init__()
        self.heads, norm = heads, nn.RMSNorm if modern else nn.LayerNorm
        self.norms = nn.ModuleList(norm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width if modern else 4 * width, width)
        self.modern = modern

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        inner = self.up(self.norms[1](x))
        return x + self.down(F.silu(inner.chunk(2, -1)[0]) * inner.chunk(2, -1)[1] if self.modern else F.gelu(inner))


def language(modern):
    return nn.Sequential(nn.Embedding(256, 64), *(Causal(64, 4, modern) for _ in range(3)), nn.Linear(64, 256)), tokens()


@model
def gpt():
    return language(False)


@model
def llama_block():
    return language(True)


# ---- sequences ----
class Recurrent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.embedding, self.layer, self.head = nn.Embedding(256, 64), layer, nn.Linear(64, 256)

    def forward(self, x):
        return self.head(self.layer(self.embedding(x))[0])


@model
def lstm():
    return Recurrent(nn.LSTM(64, 64, 2, batch_first=True)), tokens()


@model
def gru():
    return Recurrent(nn.GRU(64, 64, batch_first=True)), tokens()


@model
def rnn():
    return Recurrent(nn.RNN(64, 64, batch_first=True)), tokens()


@model
def wavenet():
    class Gate(nn.Module):
        def __init__(self, dilation):
            super().__init__()
            self.conv = nn.Conv1d(32, 64, 3, padding=dilation, dilation=dilation)

        def forward(self, x):
            a, b = self.conv(x).chunk(2, 1)
            return x + a.tanh() * b.sigmoid()

    return nn.Sequential(nn.Conv1d(1, 32, 1), *(Gate(2**i) for i in range(4)), nn.Conv1d(32, 1, 1)), (torch.randn(8, 1, 256),)


# ---- recommendation, graphs ----
@model
def dlrm():
    class DLRM(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(100, 16, mode="sum") for _ in range(6))
            self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 16))
            self.top = nn.Sequential(nn.Linear(16 + 21, 32), nn.ReLU(), nn.Linear(32, 1))
            self.register_buffer("pairs", torch.triu_indices(7, 7, 1), persistent=False)

        def forward(self, dense, sparse):
            first = self.bottom(dense)
            parts = torch.stack([first, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], 1)
            products = (parts @ parts.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
            return self.top(torch.cat([first, products], 1))

    return DLRM(), (torch.randn(64, 13), torch.randint(100, (64, 6, 3)))


@model
def deepfm():
    class DeepFM(nn.Module):
        def __init__(self):
            super().__init__()
            self.vectors, self.weights = nn.Embedding(1000, 16), nn.Embedding(1000, 1)
            self.deep = nn.Sequential(nn.Linear(160, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, x):
            v = self.vectors(x)
            pairs = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(1, keepdim=True)
            return self.weights(x).sum(1) + pairs + self.deep(v.flatten(1))

    return DeepFM(), (torch.randint(1000, (64, 10)),)


@model
def two_towers():
    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.user, self.item = (nn.Sequential(nn.Embedding(500, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)) for _ in range(2))

        def forward(self, users, items):
            return F.normalize(self.user(users), dim=-1) @ F.normalize(self.item(items), dim=-1).T / 0.1

    return Towers(), (torch.randint(500, (64,)), torch.randint(500, (64,)))


@model
def graph_network():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))

        def forward(self, x, source, target):
            for layer in self.layers:
                x = F.relu(layer(torch.zeros_like(x).index_add(0, target, x[source])) + x)
            return x

    return Graph(), (torch.randn(200, 32), torch.randint(200, (800,)), torch.randint(200, (800,)))


# ---- transformers' own classes ----
def of_transformers(name, config, make, **sizes):
    def create():
        import transformers

        options = getattr(transformers, config)(vocab_size=256, **sizes)
        return getattr(transformers, make)(options), tokens()

    MODELS[name] = create


if importlib.util.find_spec("transformers"):
    of_transformers("hf_bert", "BertConfig", "BertModel", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)  # fmt: skip
    of_transformers("hf_gpt2", "GPT2Config", "GPT2LMHeadModel", n_embd=64, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0,
                    attn_pdrop=0.0, use_cache=False)  # fmt: skip
    of_transformers("hf_llama", "LlamaConfig", "LlamaForCausalLM", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                    use_cache=False)  # fmt: skip
