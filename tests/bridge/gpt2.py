#!/usr/bin/env python3
"""A tiny model in GPT-2's architecture, computed from its equations.

    gpt2.py write FOLDER    writes the files gpt2*.safetensors that stand in this folder
    gpt2.py check FOLDER    compares the logits in io.safetensors with those of the model in model.safetensors

Radford et al. (2019), section 2.3, and the code that the paper published: pre-norm blocks, a last norm, learned
positions, gelu in its tanh form, weights (in, out) that multiply on the right, a head tied to the token embedding.
Names are Hugging Face's. Weights are float32; all is computed in float64. Needs PyTorch.

  gpt2.safetensors         as on Hugging Face's hub: no prefix, no head; the masks of attention among the weights
  gpt2_lm_head.safetensors what GPT2LMHeadModel.state_dict() holds: prefix, head, both mask buffers
  gpt2_f16, gpt2_bf16      the weights rounded to half precision
  gpt2.io.safetensors      tokens and their logits, greedy continuations of the tokens; the same for f16 and bf16
"""
import math
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
from convert_state_dict import load, save  # noqa: E402

TOLERANCE = 1e-6  # of max|x - y| / max(1, max|y|)
VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS, CONTINUATION = 40, 24, 16, 4, 2, 12


def random_weights():
    def normal(*shape, std=0.3, mean=0.0):
        return mean + std * torch.randn(*shape)

    w = {"wte.weight": normal(VOCABULARY, WIDTH), "wpe.weight": normal(LENGTH, WIDTH)}
    for i in range(LAYERS):
        for norm in ("ln_1", "ln_2"):
            w[f"h.{i}.{norm}.weight"], w[f"h.{i}.{norm}.bias"] = normal(WIDTH, mean=1.0), normal(WIDTH)
        for name, rows, columns in (("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                    ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)):
            w[f"h.{i}.{name}.weight"], w[f"h.{i}.{name}.bias"] = normal(rows, columns), normal(columns)
    w["ln_f.weight"], w["ln_f.bias"] = normal(WIDTH, mean=1.0), normal(WIDTH)
    return w


def logits(weights, tokens):
    """(batch, time) -> (batch, time, vocabulary)."""
    w = {name: array.double() for name, array in weights.items()}
    batch, time = tokens.shape
    causal = torch.ones(time, time).tril().bool()

    def norm(x, name):
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * w[name + ".weight"] + w[name + ".bias"]

    def conv1d(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def gelu(x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))

    def heads(x):
        return x.reshape(batch, time, HEADS, WIDTH // HEADS).transpose(1, 2)

    x = w["wte.weight"][tokens] + w["wpe.weight"][:time]
    for i in range(LAYERS):
        q, k, v = map(heads, conv1d(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").split(WIDTH, dim=-1))
        scores = (q @ k.transpose(2, 3) / math.sqrt(WIDTH / HEADS)).masked_fill(~causal, -math.inf)
        attended = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, time, WIDTH)
        x = x + conv1d(attended, f"h.{i}.attn.c_proj")
        x = x + conv1d(gelu(conv1d(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")), f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def continuation(weights, tokens):
    """The most probable next tokens, each by a clear margin. (batch, time) -> (batch, CONTINUATION)."""
    begin = tokens.shape[1]
    for _ in range(CONTINUATION):
        best = logits(weights, tokens)[:, -1].topk(2)
        assert (best.values[:, 0] - best.values[:, 1]).min() > 1e-3, "another seed, please: this one nearly ties"
        tokens = torch.cat([tokens, best.indices[:, :1]], 1)
    return tokens[:, begin:]


def write(folder):
    torch.manual_seed(3)
    weights = random_weights()
    tokens = torch.randint(VOCABULARY, (2, 7))
    mask = torch.ones(LENGTH, LENGTH).tril().reshape(1, 1, LENGTH, LENGTH)
    buffers = {f"h.{i}.attn.bias": mask for i in range(LAYERS)}
    save(folder / "gpt2.safetensors", {**weights, **buffers})
    whole = {f"transformer.{name}": array for name, array in weights.items()}
    for i in range(LAYERS):
        whole[f"transformer.h.{i}.attn.bias"] = mask.to(torch.uint8)
        whole[f"transformer.h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
    save(folder / "gpt2_lm_head.safetensors", {**whole, "lm_head.weight": weights["wte.weight"]})
    io = {"tokens": tokens}
    for suffix, dtype in (("", torch.float32), ("_f16", torch.float16), ("_bf16", torch.bfloat16)):
        rounded = {name: array.to(dtype) for name, array in weights.items()}
        if suffix:
            save(folder / f"gpt2{suffix}.safetensors", rounded)
        io["logits" + suffix] = logits(rounded, tokens).float()
        io["continuation" + suffix] = continuation(rounded, tokens)
    save(folder / "gpt2.io.safetensors", io)


def check(folder):
    prefix = "transformer."
    weights = load(folder / "model.safetensors")
    assert all(name.startswith(prefix) for name in weights), sorted(weights)
    io = load(folder / "io.safetensors")
    right = logits({name[len(prefix):]: array for name, array in weights.items()}, io["tokens"])
    error = float((io["logits"] - right).abs().max() / right.abs().max().clamp(min=1))
    sys.exit(0 if error <= TOLERANCE else f"error {error:.1e} above {TOLERANCE}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "check"):
        sys.exit(__doc__)
    {"write": write, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2]))
