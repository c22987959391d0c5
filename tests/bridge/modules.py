#!/usr/bin/env python3
"""PyTorch's side of the bridge: modules whose state dicts go both ways.

    modules.py write FOLDER    NAME.safetensors, the state dict of each module, and NAME.io.safetensors: inputs, output
    modules.py check FOLDER    loads the state dicts of such a folder strictly, and compares the outputs

What is written stands in this folder too, for where there is no PyTorch. Needs PyTorch (1.13 or later).
"""
import pathlib
import sys

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
from convert_state_dict import load, save  # noqa: E402

TOLERANCE = 1e-6  # of max|x - y| / max(1, max|y|), in float32
WIDTH, HEADS, HIDDEN, KEY_WIDTH, VALUE_WIDTH, COUNT = 8, 2, 12, 6, 10, 7


def mha(**options):
    return nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **options)


def layer(kind, norm_first, activation):
    return kind(WIDTH, HEADS, HIDDEN, dropout=0, activation=activation, batch_first=True, norm_first=norm_first)


def modules():
    """Each module by its name."""
    found = {
        "linear": nn.Linear(WIDTH, HIDDEN),
        "linear_no_bias": nn.Linear(WIDTH, HIDDEN, bias=False),
        "layer_norm": nn.LayerNorm(WIDTH),
        "embedding": nn.Embedding(COUNT, WIDTH),
        "attention": mha(),
        "attention_no_bias": mha(bias=False),
        "attention_widths": mha(kdim=KEY_WIDTH, vdim=VALUE_WIDTH),
        "attention_widths_no_bias": mha(kdim=KEY_WIDTH, vdim=VALUE_WIDTH, bias=False),
    }
    for name, kind in (("encoder", nn.TransformerEncoderLayer), ("decoder", nn.TransformerDecoderLayer)):
        for norm in ("pre", "post"):
            for activation in ("relu", "gelu"):
                found[f"{name}_{norm}_{activation}"] = layer(kind, norm == "pre", activation)
    return found


def inputs_of(name):
    if name == "embedding":
        return [torch.randint(COUNT, (2, 5))]
    if name.startswith("attention_widths"):
        return [torch.randn(2, 3, WIDTH), torch.randn(2, 5, KEY_WIDTH), torch.randn(2, 5, VALUE_WIDTH)]
    if name.startswith("decoder"):
        return [torch.randn(2, 3, WIDTH), torch.randn(2, 5, WIDTH)]
    return [torch.randn(2, 5, WIDTH)]


def output_of(name, module, inputs):
    # Dropout is 0, and gradients are on: without them PyTorch 1.13 takes a shortcut that fails where there is no bias.
    if name.startswith("attention"):
        return module(*(inputs if len(inputs) == 3 else inputs * 3))[0].detach()
    return module(*inputs).detach()


def write(folder):
    torch.manual_seed(1)
    for name, module in modules().items():
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.5)  # biases and gains too, so that none of them is left out unseen
        inputs = inputs_of(name)
        save(folder / f"{name}.safetensors", module.state_dict())
        save(folder / f"{name}.io.safetensors",
             {**{f"input.{i}": x for i, x in enumerate(inputs)}, "output": output_of(name, module, inputs)})


def check(folder):
    wrong = []
    for name, module in modules().items():
        try:
            module.load_state_dict(load(folder / f"{name}.safetensors"), strict=True)
        except RuntimeError as error:
            wrong.append(f"{name}: {error}")
            continue
        io = load(folder / f"{name}.io.safetensors")
        output = output_of(name, module, [io[f"input.{i}"] for i in range(len(io) - 1)])
        error = float((output - io["output"]).abs().max() / io["output"].abs().max().clamp(min=1))
        print(f"{name}: error {error:.1e}")
        if not error <= TOLERANCE:
            wrong.append(f"{name}: error {error:.1e} above {TOLERANCE}")
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "check"):
        sys.exit(__doc__)
    {"write": write, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2]))
