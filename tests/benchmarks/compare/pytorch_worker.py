"""The side of PyTorch: a process that waits for lines and answers each with a line of JSON, as benchmark_worker does.

  prepare train B,T,V,width,heads,layers explicit|encoder_layer
  prepare attention B,T,width,heads module|explicit|fused
  prepare decode B,T,V,width,heads,layers explicit
  run N, memory, release, circumstances, variants
"""
import gc
import json
import re
import sys
import time

import torch
import torch.nn.functional as F

from pytorch_models import ATTENTIONS, BLOCKS, LanguageModel


def resident(name):
    with open("/proc/self/status") as status:
        return int(re.search(name + r":\s+(\d+)", status.read())[1]) * 1024


def training_step(size, variant):
    batch, length, vocabulary, width, heads, layers = size
    model = LanguageModel(vocabulary, width, heads, layers, length, BLOCKS[variant])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, foreach=True)
    tokens, targets = (torch.randint(0, vocabulary, (batch, length)) for _ in range(2))

    def step():
        loss = F.cross_entropy(model(tokens).view(-1, vocabulary), targets.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def attention_step(size, variant):
    batch, length, width, heads = size
    layer = ATTENTIONS[variant](width, heads, length)
    x, dy = torch.randn(batch, length, width, requires_grad=True), torch.randn(batch, length, width)

    def step():
        x.grad = None
        for parameter in layer.parameters():
            parameter.grad = None
        layer(x).backward(dy)

    return step


def decoding(size, variant):
    _, _, vocabulary, width, heads, layers = size
    longest, new_tokens = 256, 128
    model = LanguageModel(vocabulary, width, heads, layers, longest, BLOCKS[variant]).eval()
    prompt = torch.arange(1, 9).view(1, 8)
    caches = [torch.zeros(2, 1, heads, longest, width // heads) for _ in range(layers)]

    @torch.inference_mode()
    def generate():
        said, tokens, place = [], prompt, 0
        for _ in range(new_tokens):
            logits = model.decode(tokens, caches, place)
            place += tokens.shape[1]
            tokens = logits.argmax(-1)
            said.append(tokens)
        return torch.cat(said, 1)

    return generate


KINDS = {"train": training_step, "attention": attention_step, "decode": decoding}


class Worker:
    def __init__(self):
        self.step, self.before, self.prepared = None, 0, 0

    def prepare(self, kind, size, variant):
        self.release()
        with open("/proc/self/clear_refs", "w") as peak:  # the peak counts from here
            peak.write("5")
        self.before = resident("VmRSS")
        self.step = KINDS[kind]([int(n) for n in size.split(",")], variant)
        self.prepared = resident("VmRSS")
        return {}

    def run(self, steps):
        began = time.perf_counter()
        for _ in range(int(steps)):
            self.step()
        return {"seconds": time.perf_counter() - began}

    def memory(self):
        return {"before": self.before, "prepared": self.prepared, "peak": resident("VmHWM")}

    def release(self):
        self.step = None
        gc.collect()
        return {}

    def circumstances(self):
        return {"torch": torch.__version__, "threads": torch.get_num_threads()}

    def variants(self):
        return {"train": list(BLOCKS), "attention": list(ATTENTIONS), "decode": ["explicit"]}


def main():
    threads = int(sys.argv[sys.argv.index("--threads") + 1])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    worker = Worker()
    for line in sys.stdin:
        command, *arguments = line.split()
        try:
            answer = getattr(worker, command)(*arguments)
        except Exception as error:  # whatever went wrong, the other side must hear of it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
