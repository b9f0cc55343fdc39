"""Networks of PyTorch beside PyTorch itself: outputs, gradients, and weights after steps."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch_oracle

Make = Callable[[Any, Any, Any], Any]
_CASES: dict[str, tuple[Make, Callable[[Any], tuple[Any, ...]]]] = {}


def _case(inputs: Callable[[Any], tuple[Any, ...]]) -> Callable[[Make], Make]:
    """A network: a function of torch, torch.nn and torch.nn.functional, and its inputs."""

    def add(make: Make) -> Make:
        _CASES[make.__name__.lstrip("_")] = make, inputs
        return make

    return add


def _images(torch: Any) -> tuple[Any, ...]:
    return (torch.randn(4, 3, 9, 8),)


def _tokens(torch: Any) -> tuple[Any, ...]:
    return (torch.randn(4, 6, 8),)


@_case(_images)
def _residual(torch: Any, nn: Any, F: Any) -> Any:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(8)
            self.relu = nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(8, momentum=0.3, eps=1e-3)

        def forward(self, x: Any) -> Any:
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            y += x
            return self.relu(y)

    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        Block(),
        nn.MaxPool2d(3, 2, 1),
        Block(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


@_case(_images)
def _depthwise(torch: Any, nn: Any, F: Any) -> Any:
    class Gate(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.less = nn.Conv2d(channels, 4, 1)
            self.more = nn.Conv2d(4, channels, 1)

        def forward(self, x: Any) -> Any:
            y = F.relu(self.less(x.mean((2, 3), keepdim=True)))
            return x * F.hardsigmoid(self.more(y))

    return nn.Sequential(
        nn.Conv2d(3, 12, 1, bias=False),
        nn.BatchNorm2d(12),
        nn.Hardswish(inplace=True),
        nn.Conv2d(12, 12, 5, 2, 2, groups=12, bias=False),
        nn.BatchNorm2d(12),
        nn.SiLU(inplace=True),
        Gate(12),
        nn.Conv2d(12, 8, 3, padding=1, groups=4, dilation=1),
        nn.ReLU6(),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.Flatten(1),
        nn.Linear(8 * 3 * 2, 5),
    )


@_case(_tokens)
def _transformer(torch: Any, nn: Any, F: Any) -> Any:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8, eps=1e-6)
            self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)
            self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
            self.scale = nn.Parameter(torch.full((8,), 0.5))

        def forward(self, x: Any) -> Any:
            b, n, c = x.shape
            qkv = self.qkv(self.norm1(x)).reshape(b, n, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
            q, k, v = qkv.unbind(0)
            y = F.scaled_dot_product_attention(q, k, v)
            x = x + self.scale * self.proj(y.transpose(1, 2).reshape(b, n, c))
            return x + self.mlp(self.norm2(x))

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.randn(1, 1, 8))
            self.position = nn.Parameter(torch.randn(1, 7, 8))
            self.blocks = nn.Sequential(Block(), Block())
            self.head = nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
            return self.head(self.blocks(x)[:, 0])

    return Transformer()


@_case(_tokens)
def _written_attention(torch: Any, nn: Any, F: Any) -> Any:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(8, 2, batch_first=True)
            self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8)
            self.register_buffer("mask", torch.ones(6, 6).tril().bool())

        def forward(self, x: Any) -> Any:
            x = x + self.inner(x, x, x, need_weights=False)[0]
            scores = (x @ self.k(x).transpose(-2, -1)) / 8**0.5
            scores = scores.masked_fill(~self.mask, float("-inf"))
            return scores.softmax(-1) @ self.v(x)

    return Attention()


@_case(_images)
def _views(torch: Any, nn: Any, F: Any) -> Any:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, padding="same")
            self.linear = nn.Linear(8, 6)

        def forward(self, x: Any) -> Any:
            y = self.conv(x)
            a, b = y.chunk(2, 1)
            y = torch.cat([b, a.neg()], 1).clone()
            y[:, 0] = 0.5
            y[:, 1:3, 2:5] *= 2
            y[:, :, -1].add_(1.0)
            y = F.pad(y, (1, 0, 2, 1))
            y = y.flip(3).roll((1, 2), (2, 3))
            y = y.permute(0, 2, 3, 1).contiguous().view(x.shape[0], -1, 8)
            rows = torch.arange(0, 8, 2)
            return self.linear(y[:, rows] * y[:, 1::3][:, :4]).squeeze(-1).sum(1)

    return Views()


@_case(_images)
def _norms(torch: Any, nn: Any, F: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.GroupNorm(2, 8),
        nn.LeakyReLU(0.2),
        nn.Conv2d(8, 8, 1),
        nn.InstanceNorm2d(8, affine=True),
        nn.ELU(),
        nn.BatchNorm2d(8, affine=False),
        nn.Tanh(),
        nn.Conv2d(8, 8, 1),
        nn.BatchNorm2d(8, track_running_stats=False),
        nn.PReLU(8),
        nn.Flatten(2),
        nn.BatchNorm1d(8),
        nn.Softplus(),
        nn.AdaptiveAvgPool1d(4),
    )


@_case(_images)
def _in_parts(torch: Any, nn: Any, F: Any) -> Any:
    """A frozen weight, tied ones, and a batch norm that stays in inference."""

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 4, 3, padding=1)
            self.norm = nn.BatchNorm2d(4)
            self.one, self.other = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
            self.other.weight = self.one.weight
            self.stem.weight.requires_grad_(False)
            self.norm.running_mean.uniform_(-1, 1)
            self.norm.running_var.uniform_(1, 2)
            self.norm.eval()

        def forward(self, x: Any) -> Any:
            y = self.norm(self.stem(x))
            return self.other(F.relu(self.one(y))) + self.one(y).detach() * y

    return Parts()


@_case(_tokens)
def _without_gradient(torch: Any, nn: Any, F: Any) -> Any:
    class WithoutGradient(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)
            self.rnn = nn.GRU(8, 4, batch_first=True)

        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                target = self.one(x).tanh()
                also = target * 2
            y = self.one(x) * target + also * self.two(x).detach() + self.two(x)
            return torch.einsum("bij,bkj->bik", y, y) + self.rnn(y)[0].sum((1, 2))[:, None, None]

    return WithoutGradient()


@_case(lambda torch: (torch.randint(0, 11, (4, 6)),))
def _words(torch: Any, nn: Any, F: Any) -> Any:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(11, 8, padding_idx=3), nn.Embedding(6, 8)
            self.register_buffer("ids", torch.arange(6)[None], persistent=False)
            self.norm = nn.RMSNorm(8)

        def forward(self, tokens: Any) -> Any:
            x = self.words(tokens) + self.places(self.ids[:, : tokens.shape[1]])
            return F.linear(self.norm(x), self.words.weight)

    return Words()


@_case(lambda torch: (torch.randint(0, 9, (4, 6)),))
def _bags(torch: Any, nn: Any, F: Any) -> Any:
    class Bags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.means = nn.EmbeddingBag(9, 3, mode="mean", padding_idx=4)
            self.sums = nn.EmbeddingBag(9, 3, mode="sum")
            self.whole = nn.EmbeddingBag(9, 3, include_last_offset=True)
            self.factors = nn.Embedding(9, 1)
            self.register_buffer("offsets", torch.tensor([0, 2, 2, 5], dtype=torch.int32))
            self.register_buffer("padding", torch.tensor([[4, 4], [4, 1]]))

        def forward(self, words: Any) -> list[Any]:
            flat = words.flatten()
            factors = self.factors(words).flatten(1)
            return [
                self.means(words) * self.sums(words, per_sample_weights=factors),
                self.means(flat.int(), self.offsets),
                self.sums(flat, self.offsets.long()),
                self.whole(flat, torch.arange(0, flat.shape[0] + 1, 3)),
                self.means(self.padding),
            ]

    return Bags()


@_case(_images)
def _up_and_down(torch: Any, nn: Any, F: Any) -> Any:
    class UpAndDown(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Conv2d(3, 8, 3, 2, 1), nn.ConvTranspose2d(8, 8, 2, 2)
            self.last = nn.Conv2d(8, 8, 1)

        def forward(self, x: Any) -> dict[str, Any]:
            y = self.down(x)
            up = F.interpolate(self.up(y), size=x.shape[-2:], mode="bilinear")
            small = F.interpolate(y, scale_factor=2, mode="nearest")
            return {"out": self.last(up), "aux": F.pixel_shuffle(small, 2)}

    return UpAndDown()


@_case(lambda torch: (torch.randn(4, 6), torch.randn(4, 6)))
def _arithmetic(torch: Any, nn: Any, F: Any) -> Any:
    class Arithmetic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 6))
            self.factor = nn.Parameter(torch.tensor(0.7))

        def forward(self, a: Any, b: Any) -> tuple[Any, Any]:
            y = torch.where(a > b, a @ self.weight, 2 - b) * self.factor
            z = torch.maximum(y, b).clamp(-1, 1.5) + (a.abs() + 1).log() / (1 + b**2).sqrt()
            z = z / F.normalize(a, dim=1).exp().sum(1, keepdim=True)
            best = z.topk(2, 1)[0].mean(-1) + y.var(1) - torch.logsumexp(z, 1)
            return F.log_softmax(z, 1), best.sigmoid() + (a != b).to(a.dtype).mean(1)

    return Arithmetic()


@_case(_images)
def _window_bias(torch: Any, nn: Any, F: Any) -> Any:
    """Windows, and a table of biases by relative positions, as in Swin."""

    class Windows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(9, 1))
            at = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij"))
            at = at.flatten(1)
            at = (at[:, :, None] - at[:, None]).permute(1, 2, 0) + 1
            self.register_buffer("index", (at[..., 0] * 3 + at[..., 1]).flatten())
            self.linear = nn.Linear(3, 4)

        def forward(self, x: Any) -> Any:
            x = F.pad(x, (0, 0, 0, 1)).permute(0, 2, 3, 1)
            b, h, w, c = x.shape
            x = torch.roll(x, shifts=(-1, -1), dims=(1, 2))
            x = x.view(b, h // 2, 2, w // 2, 2, c).transpose(2, 3).reshape(-1, 4, c)
            bias = self.table[self.index].view(4, 4, -1).permute(2, 0, 1).contiguous()
            x = (x @ x.mT + bias).softmax(-1) @ self.linear(x)
            return x.view(b, h // 2, w // 2, 2, 2, 4).transpose(2, 3).reshape(b, h * w, 4)

    return Windows()


@pytest.mark.slow
@pytest.mark.parametrize("name", _CASES)
def test_network(torch: ModuleType, name: str) -> None:
    make, inputs = _CASES[name]
    torch.manual_seed(len(name))
    module = make(torch, torch.nn, torch.nn.functional)
    torch_oracle.check(torch, module, *inputs(torch))
