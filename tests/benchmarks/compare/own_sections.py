"""What is measured of xtape alone: growth, scaling over threads, start-up."""
import contextlib
import os
import subprocess
import tempfile
import time

import measure
import workers
from sections import PRODUCT
from tables import Column, bytes_text, milliseconds, number, ratio_text, table

EXPONENTS = {  # at most; the slack is for overheads at the small end and for noise
    "attention time over T": 2.1,
    "attention memory over T": 1.1,
    "step time over batch": 1.1,
    "step time over layers": 1.1,
}


def curve(run, kind, sizes):
    """Median seconds of each size, all measured in turn, and growth of peak memory."""
    run.now(f"growth of {kind}")
    with contextlib.ExitStack() as stack:
        started = {}
        for size in sizes:
            worker = stack.enter_context(workers.ours(run.build, run.threads))
            worker.prepare(kind, size)
            started[size] = worker
        times = measure.in_turn(started, run.quick, rounds=3 if run.quick else 5)
        return ([measure.spread(times[size])["median"] for size in sizes],
                [started[size].growth() for size in sizes])


def growth(run):
    longest = 4096 if run.quick else 8192
    lengths = [t for t in (256, 512, 1024, 2048, 4096, 8192) if t <= longest]
    seconds, memory = curve(run, "attention", [(1, t, 256, 4) for t in lengths])
    batch, length, vocabulary, width, heads, layers = run.configurations["baby"]
    batches, depths = [3, 6, 12, 24, 48], [1, 2, 4, 8, 16]
    over_batch, _ = curve(run, "train", [(b, length, vocabulary, width, heads, layers) for b in batches])
    over_layers, _ = curve(run, "train", [(batch, length, vocabulary, width, heads, n) for n in depths])
    measured = {
        "attention time over T": (lengths, seconds, "s"),
        "attention memory over T": (lengths, memory, "bytes"),
        "step time over batch": (batches, over_batch, "s"),
        "step time over layers": (depths, over_layers, "s"),
    }
    rows = []
    for name, (sizes, amounts, unit) in measured.items():
        fitted = measure.exponent(sizes, amounts)
        rows.append({"name": name, "sizes": sizes, "amounts": amounts, "unit": unit, "exponent": fitted,
                     "required": EXPONENTS[name],
                     "verdict": measure.verdict(fitted, EXPONENTS[name], at_most=True)})
    return {"rows": rows}


def show_growth(result):
    def amount(row, value):
        return f"{milliseconds(value)} ms" if row["unit"] == "s" else bytes_text(value)

    columns = [Column("", lambda r: r["name"]), Column("exponent", lambda r: f"{r['exponent']:.2f}"),
               Column("at most", lambda r: number(r["required"])), Column("", lambda r: r["verdict"]),
               Column("from", lambda r: f"{r['sizes'][0]}: {amount(r, r['amounts'][0])}"),
               Column("to", lambda r: f"{r['sizes'][-1]}: {amount(r, r['amounts'][-1])}")]
    return table("Growth: amount ~ size^exponent (attention 1,T,256,4; steps of baby)", columns, result["rows"])


def scaling(run):
    rows = []
    for name, size in run.configurations.items():
        run.now(f"scaling of {name}")
        with contextlib.ExitStack() as stack:
            started = {}
            for key, kind, amount in (("step", "train", size), ("product", "product", PRODUCT)):
                for threads in (1, 2):
                    worker = stack.enter_context(workers.ours(run.build, threads))
                    worker.prepare(kind, amount)
                    started[key, threads] = worker
            times = measure.in_turn(started, run.quick)
        step = measure.ratios(times["step", 1], times["step", 2])
        product = measure.ratios(times["product", 1], times["product", 2])
        of_product = measure.spread(measure.ratios(step, product))
        row = {"name": name, "step": measure.spread(step), "product": measure.spread(product), "of_product": of_product,
               "required": None, "verdict": ""}
        if name == "toy":
            row.update(required="1.3 x", verdict=measure.verdict(row["step"]["median"], 1.3))
        elif name in ("medium", "larger"):
            row.update(required="0.95 of product", verdict=measure.verdict(of_product["median"], 0.95))
        rows.append(row)
    return {"rows": rows}


def show_scaling(result):
    columns = [Column("", lambda r: r["name"]), Column("step (p10..p90)", lambda r: ratio_text(r["step"])),
               Column("product (p10..p90)", lambda r: ratio_text(r["product"])),
               Column("of product (p10..p90)", lambda r: ratio_text(r["of_product"])),
               Column("required", lambda r: r["required"] or ""), Column("", lambda r: r["verdict"])]
    return table("Two threads over one, beside a matrix product in the same rounds", columns, result["rows"])


def start(run):
    program = run.build / "examples" / "copy_task"
    command, seconds = [str(program), "--steps", "0"], []
    refused = subprocess.run(command, capture_output=True).returncode
    for _ in range(5 if run.quick else 15):
        began = time.perf_counter()
        subprocess.run(command, capture_output=True)
        seconds.append(time.perf_counter() - began)
    took = measure.spread(seconds)["median"]
    with tempfile.TemporaryDirectory() as folder:
        stripped = os.path.join(folder, "copy_task")
        subprocess.run(["strip", "-o", stripped, str(program)], check=True)
        size = os.path.getsize(stripped)
    time_row = {"name": "copy_task --steps 0, milliseconds", "value": 1000 * took, "required": 50,
                "verdict": f"refused: exit code {refused}" if refused else measure.verdict(1000 * took, 50, at_most=True)}
    size_row = {"name": "copy_task stripped, megabytes", "value": size / 1e6, "required": 2,
                "verdict": measure.verdict(size / 1e6, 2, at_most=True)}
    return {"rows": [time_row, size_row]}


def show_start(result):
    columns = [Column("", lambda r: r["name"]), Column("", lambda r: f"{r['value']:.3g}"),
               Column("at most", lambda r: number(r["required"])), Column("", lambda r: r["verdict"])]
    return table("Start-up and size", columns, result["rows"])
