"""The copy task in PyTorch: the same model, initial weights' distributions, data, settings, evaluations and stopping rule
as examples/copy_task. Prints a JSON line. The batches of training are made beforehand and cost it nothing."""
import argparse
import json
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

flags = argparse.ArgumentParser(description=__doc__)
flags.add_argument("--seed", type=int, default=0)
flags.add_argument("--steps", type=int, default=2000)
flags.add_argument("--threads", type=int, default=1)
o = flags.parse_args()
torch.set_num_threads(o.threads)
torch.manual_seed(o.seed)

SHORTEST, LONGEST, LETTERS, WIDTH, HEADS, LAYERS, BATCH, RATE, WARMUP = 4, 12, 26, 64, 4, 2, 32, 2e-3, 100
EVALUATE_EVERY, EVALUATED, JUDGED, TARGET = 100, 1000, 1000, 0.995
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
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, 0, 1 / math.sqrt(module.weight.shape[1]))
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, i):
        x = self.tokens(i) + self.positions.weight[: i.shape[1]]
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


def sequence(generator):
    length = int(torch.randint(SHORTEST, LONGEST + 1, (), generator=generator))
    letters = torch.randint(0, LETTERS, (length,), generator=generator)
    return torch.cat((letters, torch.tensor([SEPARATOR]), letters))


def batch(generator):
    rows = [sequence(generator) for _ in range(BATCH)]
    longest = max(len(row) for row in rows)
    tokens, targets = torch.full((BATCH, longest - 1), PADDING), torch.full((BATCH, longest - 1), IGNORED)
    for i, row in enumerate(rows):
        tokens[i, : len(row) - 1] = row[:-1]
        targets[i, len(row) // 2 : len(row) - 1] = row[len(row) // 2 + 1 :]
    return tokens, targets


@torch.no_grad()
def right_answers(model, count, generator):
    """How many of so many sequences it copies whole, the most likely letter at a time, in batches of equal lengths."""
    by_length = {}
    for _ in range(count):
        row = sequence(generator)
        by_length.setdefault(len(row), []).append(row)
    right = 0
    for rows in by_length.values():
        for asked in torch.stack(rows).split(128):
            said = asked[:, : asked.shape[1] // 2 + 1]
            while said.shape[1] < asked.shape[1]:
                said = torch.cat((said, model(said)[:, -1].argmax(-1, keepdim=True)), 1)
            right += int((said == asked).all(1).sum())
    return right


generator = torch.Generator().manual_seed(o.seed)
data = [batch(generator) for _ in range(o.steps)]
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), RATE, betas=(0.9, 0.98), weight_decay=0.01, foreach=True)
began, training, at_target, step = time.perf_counter(), 0.0, 0, 0
while step < o.steps and at_target < 2:
    step_began = time.perf_counter()
    progress = max(0, step - WARMUP) / max(1, o.steps - WARMUP)
    factor = min((step + 1) / WARMUP, 0.1 + 0.45 * (1 + math.cos(math.pi * progress)))
    for group in optimizer.param_groups:
        group["lr"] = RATE * factor
    tokens, targets = data[step]
    loss = F.cross_entropy(model(tokens).reshape(-1, V), targets.reshape(-1), ignore_index=IGNORED)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    training += time.perf_counter() - step_began
    step += 1
    if step % EVALUATE_EVERY == 0 or step == o.steps:  # the same examples each time
        right = right_answers(model, EVALUATED, torch.Generator().manual_seed(10_000 + o.seed))
        at_target = at_target + 1 if right >= TARGET * EVALUATED else 0
total = time.perf_counter() - began
right = right_answers(model, JUDGED, torch.Generator().manual_seed(20_000 + o.seed))
print(json.dumps({"steps": step, "training": training, "total": total, "right": right, "torch": torch.__version__}))
