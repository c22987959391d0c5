#!/usr/bin/env python3
"""Times training steps of the copy task, xtape beside PyTorch, in turn. Needs Debian's python3-torch and a release build of copy_task."""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
flags = argparse.ArgumentParser(description=__doc__)
flags.add_argument("--rounds", type=int, default=5)
flags.add_argument("--steps", type=int, default=300)
flags.add_argument("--threads", type=int, nargs="+", default=[1, 2])
flags.add_argument("--pytorch_blas", help="folder with another libblas.so.3 for PyTorch, such as the OpenMP build of OpenBLAS")
flags.add_argument("--build", type=pathlib.Path, default=here.parents[1] / "build" / "release")
o = flags.parse_args()


def xtape(threads):
    command = [o.build / "examples" / "copy_task", "--steps", str(o.steps), "--target", "1", "--threads", str(threads)]
    output = subprocess.run(command, capture_output=True, text=True).stdout
    return float(re.search(r"\(([\d.]+) ms a step", output)[1])


def pytorch(threads):
    command = [sys.executable, here / "copy_task_torch.py", "--steps", str(o.steps), "--threads", str(threads)]
    environment = dict(os.environ, **({"LD_LIBRARY_PATH": o.pytorch_blas} if o.pytorch_blas else {}))
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)["ms"]


times = {(side, threads): [] for threads in o.threads for side in (xtape, pytorch)}
for _ in range(o.rounds):
    for (side, threads), taken in times.items():
        taken.append(side(threads))
print(f"copy task, {o.steps} steps, {o.rounds} rounds in turn; milliseconds a step: median (least)")
for (side, threads), taken in times.items():
    print(f"  {side.__name__:8} {threads} thread{'s' if threads > 1 else ' '} {statistics.median(taken):7.2f} ({min(taken):.2f})")
best = {side: min(statistics.median(times[side, t]) for t in o.threads) for side in (xtape, pytorch)}
print(f"ratio of the better settings, PyTorch / xtape: {best[pytorch] / best[xtape]:.2f}")
