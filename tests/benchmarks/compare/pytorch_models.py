"""What PyTorch computes on its side: the same models as the layers of xtape, written in the ways that are usual there."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def hidden_above_diagonal(time):
    return torch.ones(time, time, dtype=torch.bool).triu(1)


class ExplicitAttention(nn.Module):
    """Self-attention from matrix products, a mask and a softmax, with one projection for q, k and v."""

    def __init__(self, width, heads, longest):
        super().__init__()
        self.heads = heads
        self.in_proj, self.out_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("hidden", hidden_above_diagonal(longest))

    def split(self, x):  # (batch, time, 3 width) -> q, k, v, each (batch, heads, time, head width)
        batch, time, _ = x.shape
        return self.in_proj(x).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)

    def merge(self, y):
        return self.out_proj(y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1))

    def forward(self, x):
        q, k, v = self.split(x)
        scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]))
        time = scores.shape[-1]
        return self.merge(scores.masked_fill(self.hidden[:time, :time], -math.inf).softmax(-1) @ v)

    def decode(self, x, keys, values, place):
        """Further tokens from `place` on; keys and values hold the earlier ones and take up these."""
        q, k, v = self.split(x)
        end = place + x.shape[1]
        keys[:, :, place:end], values[:, :, place:end] = k, v
        scores = q @ keys[:, :, :end].transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]))
        if x.shape[1] > 1:
            scores = scores.masked_fill(self.hidden[place:end, :end], -math.inf)
        return self.merge(scores.softmax(-1) @ values[:, :, :end])


class FusedAttention(ExplicitAttention):
    """The same through PyTorch's own function for it."""

    def forward(self, x):
        q, k, v = self.split(x)
        y, _ = F._scaled_dot_product_attention(q, k, v, None, 0.0, False, True)
        return self.merge(y)


class ModuleAttention(nn.Module):
    """nn.MultiheadAttention with an additive mask."""

    def __init__(self, width, heads, longest):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.register_buffer("mask", torch.full((longest, longest), -math.inf).triu(1))

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False, attn_mask=self.mask)[0]


class ExplicitBlock(nn.Module):
    def __init__(self, width, heads, longest):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = ExplicitAttention(width, heads, longest)
        self.linear1, self.linear2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def feed_forward(self, x):
        return x + self.linear2(F.gelu(self.linear1(self.norm2(x))))

    def forward(self, x):
        return self.feed_forward(x + self.attention(self.norm1(x)))

    def decode(self, x, keys, values, place):
        return self.feed_forward(x + self.attention.decode(self.norm1(x), keys, values, place))


class EncoderLayerBlock(nn.Module):
    """nn.TransformerEncoderLayer under a causal mask."""

    def __init__(self, width, heads, longest):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.register_buffer("mask", torch.full((longest, longest), -math.inf).triu(1))

    def forward(self, x):
        time = x.shape[1]
        return self.layer(x, src_mask=self.mask[:time, :time])


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, width, heads, layers, longest, block=ExplicitBlock):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(block(width, heads, longest) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def decode(self, tokens, caches, place):
        x = self.tokens(tokens) + self.positions.weight[place : place + tokens.shape[1]]
        for block, (keys, values) in zip(self.blocks, caches):
            x = block.decode(x, keys, values, place)
        return self.head(self.norm(x[:, -1:]))


BLOCKS = {"explicit": ExplicitBlock, "encoder_layer": EncoderLayerBlock}
ATTENTIONS = {"module": ModuleAttention, "explicit": ExplicitAttention}
if hasattr(F, "_scaled_dot_product_attention"):
    ATTENTIONS["fused"] = FusedAttention
