"""The copy task in PyTorch: the same model, data and settings as examples/copy_task. Prints a JSON line."""
import argparse
import json
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

flags = argparse.ArgumentParser(description=__doc__)
flags.add_argument("--seed", type=int, default=0)
flags.add_argument("--steps", type=int, default=3000)
flags.add_argument("--threads", type=int, default=1)
o = flags.parse_args()
torch.set_num_threads(o.threads)
torch.manual_seed(o.seed)

SHORTEST, LONGEST, LETTERS, WIDTH, HEADS, LAYERS, BATCH, RATE, WARMUP = 4, 12, 26, 64, 4, 2, 32, 3e-3, 100
V, T = LETTERS + 2, 2 * LONGEST
SEPARATOR, PADDING, IGNORED = LETTERS, LETTERS + 1, -100


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)).masked_fill(mask[:t, :t], -math.inf)
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, WIDTH), nn.Embedding(T, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, V, bias=False)
        self.register_buffer("mask", torch.ones(T, T, dtype=torch.bool).triu(1))

    def forward(self, i):
        x = self.tokens(i) + self.positions.weight[: i.shape[1]]
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


def batch(generator):
    lengths = torch.randint(SHORTEST, LONGEST + 1, (BATCH,), generator=generator)
    n = int(lengths.max())
    tokens, targets = torch.full((BATCH, 2 * n), PADDING), torch.full((BATCH, 2 * n), IGNORED)
    for row, length in enumerate(lengths.tolist()):
        x = torch.randint(0, LETTERS, (length,), generator=generator)
        tokens[row, :length], tokens[row, length], tokens[row, length + 1 : 2 * length] = x, SEPARATOR, x[:-1]
        targets[row, length : 2 * length] = x
    return tokens, targets


generator = torch.Generator().manual_seed(o.seed)
data = [batch(generator) for _ in range(o.steps)]
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), RATE, betas=(0.9, 0.98), weight_decay=0.01, foreach=True)
began = time.perf_counter()
for step, (tokens, targets) in enumerate(data):
    progress = max(0, step - WARMUP) / max(1, o.steps - WARMUP)
    factor = min((step + 1) / WARMUP, 0.1 + 0.45 * (1 + math.cos(math.pi * progress)))
    for group in optimizer.param_groups:
        group["lr"] = RATE * factor
    loss = F.cross_entropy(model(tokens).reshape(-1, V), targets.reshape(-1), ignore_index=IGNORED)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
print(json.dumps({"ms": 1000 * (time.perf_counter() - began) / o.steps, "loss": loss.item(), "torch": torch.__version__}))
