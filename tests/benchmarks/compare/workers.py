"""Processes that are timed: each side has its own, waits without using a processor, and works when told to."""
import contextlib
import glob
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
OPENBLAS_BUILDS = {  # Debian's packages libopenblas0-pthread and libopenblas0-openmp
    name: folder
    for name, place in (("pthreads", "openblas-pthread"), ("OpenMP", "openblas-openmp"))
    for folder in glob.glob(f"/usr/lib/*-linux-gnu/{place}")
}


class Worker:
    """A process that answers a line with a line of JSON."""

    def __init__(self, command, environment=None):
        self.process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, **(environment or {})))
        self.steps = 1  # of a block

    def ask(self, *words):
        try:
            self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"{self.process.args[0]} ended when asked to {' '.join(map(str, words))}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(f"{self.process.args[0]}: {answer['error']}")
        return answer

    def prepare(self, kind, size, variant=None):
        return self.ask("prepare", kind, ",".join(map(str, size)), *([variant] if variant else []))

    def warm_up(self, block_seconds):
        """Runs once, and again to find out how many steps fill a block. Returns the seconds of a step."""
        first = self.ask("run", 1)["seconds"]
        second = first if first > 10 * block_seconds else self.ask("run", 1)["seconds"]
        self.steps = math.ceil(block_seconds / second)
        return second

    def block(self):
        """Seconds a step."""
        return self.ask("run", self.steps)["seconds"] / self.steps

    def growth(self):
        """Peak memory in bytes beyond what was resident before the workload, with its parameters, was made."""
        memory = self.ask("memory")
        return memory["peak"] - memory["before"]

    def close(self):
        with contextlib.suppress(BrokenPipeError):  # it may have ended before
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def ours(build, threads):
    return Worker([build / "tests" / "benchmarks" / "benchmark_worker", "--threads", threads])


def find_pytorch():
    """An interpreter that has PyTorch, or None."""
    for python in (sys.executable, "/usr/bin/python3", shutil.which("python3")):
        probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
        if python and os.path.exists(python) and subprocess.run([python, "-c", probe]).returncode == 0:
            return python
    return None


def pytorch_environment(threads, build):
    folder = OPENBLAS_BUILDS[build]
    path = ":".join(part for part in (folder, os.environ.get("LD_LIBRARY_PATH")) if part)
    return {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads), "LD_LIBRARY_PATH": path}


def theirs(python, threads, build):
    command = [python, "-B", HERE / "pytorch_worker.py", "--threads", threads]
    return Worker(command, pytorch_environment(threads, build))


class Contenders:
    """PyTorch in all settings that may be its best: threads, builds of OpenBLAS, ways to write the model."""

    def __init__(self, python, threads, quick):
        self.python, self.workers, self.chosen = python, {}, {}
        builds = list(OPENBLAS_BUILDS)
        if not builds:
            raise RuntimeError("expected Debian's libopenblas0-pthread or libopenblas0-openmp, found neither")
        self.settings = [(1, builds[0])] + [(threads, build) for build in builds if threads > 1]
        if quick and threads > 1 and len(builds) > 1:
            self.settings = [(1, builds[0]), (threads, builds[-1])]

    def worker(self, setting):
        if setting not in self.workers:
            self.workers[setting] = theirs(self.python, *setting)
        return self.workers[setting]

    def best(self, kind, size, only=None):
        """(threads, build, variant) of the fastest short run."""
        key = (kind, tuple(size), only)
        if key not in self.chosen:
            times = {}
            for setting in self.settings:
                worker = self.worker(setting)
                for variant in [only] if only else worker.ask("variants")[kind]:
                    worker.prepare(kind, size, variant)
                    seconds = worker.warm_up(0.15)
                    more = 2 if seconds < 0.5 else 0
                    times[(*setting, variant)] = min([seconds, *(worker.block() for _ in range(more))])
                    time.sleep(0.03)  # so that threads of BLAS that spin for a while are asleep
                worker.ask("release")
            self.chosen[key] = min(times, key=times.get)
        return self.chosen[key]

    def start_best(self, kind, size, setting=None):
        """A fresh process in the best setting, prepared; and the setting."""
        threads, build, variant = setting or self.best(kind, size)
        worker = theirs(self.python, threads, build)
        worker.prepare(kind, size, variant)
        return worker, (threads, build, variant)

    def close(self):
        for worker in self.workers.values():
            worker.close()
