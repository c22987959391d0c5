"""What is measured beside PyTorch: each section is a function that gives rows, and tables say how they are shown."""
import contextlib
import json
import re
import subprocess

import measure
import workers
from tables import Column, bytes_text, milliseconds, number, ratio_text, table

# Required and hoped-for ratios, PyTorch's time over ours, and the share of the limit to be reached.
TRAINING = {"toy": (3.0, 4.0, 0.75), "baby": (1.5, 1.8, 0.75), "medium": (1.4, 1.6, 0.80), "larger": (1.1, 1.25, 0.80)}
ATTENTION, LONG_ATTENTION, LONG = 2.0, 3.0, 2048  # required below and from this time on
DECODING, SOLUTION = 5.0, 4.0
NOMINAL_GFLOPS = 110  # what two cores of the machine of the first measurements reached
PRODUCT = [1024]  # width of the square matrices whose product is the limit


def setting_text(setting):
    threads, build, variant = setting
    return f"{variant}, {threads} thread{'s' if threads > 1 else ''}{', ' + build if threads > 1 else ''}"


RATIO_COLUMNS = [
    Column("xtape", lambda r: milliseconds(r["ours"])),
    Column("PyTorch", lambda r: milliseconds(r["theirs"])),
    Column("ratio (p10..p90)", lambda r: ratio_text(r["ratio"])),
    Column("required", lambda r: number(r["required"], "x")),
    Column("goal", lambda r: number(r.get("goal"), "x")),
    Column("", lambda r: r["verdict"]),
]


def compared(name, times, required, goal, setting, **more):
    """A row of times measured in turn: medians, and the ratio of each round."""
    ratio = measure.spread(measure.ratios(times["theirs"], times["ours"]))
    return {"name": name, "ours": measure.spread(times["ours"])["median"],
            "theirs": measure.spread(times["theirs"])["median"], "ratio": ratio, "required": required, "goal": goal,
            "verdict": measure.verdict(ratio["median"], required, goal), "setting": setting_text(setting), **more}


def memory_row(name, ours, theirs):
    own, other = ours.growth(), theirs.growth()
    ratio = {"median": other / own}
    return {"name": name, "ours": own, "theirs": other, "ratio": ratio, "required": 1.0,
            "verdict": measure.verdict(other / own, 1.0)}


def memory_table(rows):
    columns = [Column("", lambda r: r["name"]), Column("xtape", lambda r: bytes_text(r["ours"])),
               Column("PyTorch", lambda r: bytes_text(r["theirs"])),
               Column("ratio", lambda r: f"{r['ratio']['median']:.2f}"),
               Column("required", lambda r: number(r["required"], "x")), Column("", lambda r: r["verdict"])]
    return table("Peak memory beyond what was resident before the model was made (its parameters count)", columns, rows)


# ---- training steps


def by_design(worker):
    """Peak growth over values + saved + parameters + gradients + moments, from what the tape says of itself."""
    memory = worker.ask("memory")
    growth, design = memory["peak"] - memory["before"], memory["design"]
    quotient = growth / sum(design.values())
    return {"growth": growth, "design": design, "quotient": quotient, "required": 1.1,
            "verdict": measure.verdict(quotient, 1.1, at_most=True)}


def train(run):
    rows, memory, design = [], [], None
    for name, size in run.configurations.items():
        run.now(f"train {name}")
        required, goal, share_goal = TRAINING[name]
        pytorch, setting = run.contenders.start_best("train", size)
        with contextlib.ExitStack() as stack:
            stack.enter_context(pytorch)
            own, product, blas = (stack.enter_context(workers.ours(run.build, run.threads)) for _ in range(3))
            gflop = own.prepare("train", size)["gflop"]
            product_gflop = product.prepare("product", PRODUCT)["gflop"]
            blas.prepare("blas_product", PRODUCT)
            times = measure.in_turn({"ours": own, "theirs": pytorch, "own code": product, "BLAS": blas}, run.quick)
            limit = min("own code", "BLAS", key=lambda code: measure.spread(times[code])["median"])
            rate = product_gflop / measure.spread(times[limit])["median"]
            share = measure.spread([gflop / t / (product_gflop / p) for t, p in zip(times["ours"], times[limit])])
            row = compared(name, times, required, goal, setting, size=size, gflop=gflop, product_rate=rate, product_code=limit, share=share,
                           share_goal=share_goal, share_of_nominal=gflop / NOMINAL_GFLOPS / min(times["ours"]),
                           share_verdict=measure.verdict(share["median"], None, share_goal))
            rows.append(row)
            memory.append(memory_row(name, own, pytorch))
            if name == "medium":
                design = by_design(own)
    return {"rows": rows, "memory": memory, "memory_by_design": design}


def show_train(result):
    limit = [
        Column("", lambda r: r["name"]), Column("GFLOP a step", lambda r: f"{r['gflop']:.2f}"),
        Column("GFLOP/s", lambda r: f"{r['gflop'] / r['ours']:.0f}"),
        Column("product", lambda r: f"{r['product_rate']:.0f} ({r['product_code']})"),
        Column("share (p10..p90)", lambda r: ratio_text(r["share"])),
        Column("goal", lambda r: f"{r['share_goal']:.2f}"), Column("", lambda r: r["share_verdict"]),
        Column(f"fastest block at {NOMINAL_GFLOPS}", lambda r: f"{r['share_of_nominal']:.2f}"),
    ]
    d = result["memory_by_design"]
    parts = ", ".join(f"{key.replace('_', ' ')} {bytes_text(amount)}" for key, amount in d["design"].items())
    return "\n\n".join([
        table("Training steps, milliseconds", [Column("", lambda r: r["name"]), *RATIO_COLUMNS,
                                               Column("PyTorch's best", lambda r: r["setting"])], result["rows"]),
        table("Share of the limit: the rate of a matrix product in the same rounds, by our code or by BLAS, whichever is faster", limit, result["rows"]),
        memory_table(result["memory"]),
        f"Peak of medium over what it needs by design: {bytes_text(d['growth'])}, {d['quotient']:.2f} times "
        f"(required at most {d['required']}: {d['verdict']})\n  {parts}"])


# ---- attention alone


def mha(run):
    rows, memory = [], []
    for size in run.attention_sizes:
        time, setting = size[1], None
        if run.quick and time > 4096:
            continue
        if time > (2048 if run.quick else 4096):  # a round of these takes minutes: as in the size before
            setting = run.contenders.best("attention", previous)
        previous = size
        run.now(f"attention {size}")
        pytorch, setting = run.contenders.start_best("attention", size, setting)
        with pytorch, workers.ours(run.build, run.threads) as own:
            own.prepare("attention", size)
            times = measure.in_turn({"ours": own, "theirs": pytorch}, run.quick)
            required = ATTENTION if time < LONG else LONG_ATTENTION
            rows.append(compared(",".join(map(str, size)), times, required, None, setting, size=size))
            memory.append(memory_row(rows[-1]["name"], own, pytorch))
    return {"rows": rows, "memory": memory}


def show_mha(result):
    columns = [Column("B,T,width,heads", lambda r: r["name"]), *RATIO_COLUMNS,
               Column("PyTorch's best", lambda r: r["setting"])]
    return (table("Attention, forward and backward with its projections, causal, milliseconds", columns, result["rows"])
            + "\n\n" + memory_table(result["memory"]))


# ---- decoding


def decode(run):
    size, new_tokens = run.configurations["medium"], 128
    pytorch, setting = run.contenders.start_best("decode", size)
    with pytorch, workers.ours(run.build, run.threads) as own:
        own.prepare("decode", size)
        times = measure.in_turn({"ours": own, "theirs": pytorch}, run.quick)
    row = compared("medium, batch 1", times, DECODING, None, setting)
    return {"rows": [dict(row, our_rate=new_tokens / row["ours"], their_rate=new_tokens / row["theirs"])]}


def show_decode(result):
    columns = [Column("", lambda r: r["name"]), Column("xtape", lambda r: f"{r['our_rate']:.0f}"),
               Column("PyTorch", lambda r: f"{r['their_rate']:.0f}"), *RATIO_COLUMNS[2:],
               Column("PyTorch's best", lambda r: r["setting"])]
    return table("Decoding with a cache, tokens a second", columns, result["rows"])


# ---- time to solution


def our_solution(run, seed):
    command = [run.build / "examples" / "copy_task", "--seed", seed, "--threads", run.threads]
    output = subprocess.run([str(part) for part in command], capture_output=True, text=True).stdout
    steps, total, each = re.search(r"trained (\d+) steps in ([\d.]+) s \(([\d.]+) ms a step", output).groups()
    right = int(re.search(r"copies (\d+) of 1000", output)[1])
    return {"steps": int(steps), "training": int(steps) * float(each) / 1000, "total": float(total), "right": right}


def their_solution(run, seed, setting):
    threads, build, _ = setting
    command = [run.contenders.python, "-B", workers.HERE.parent / "copy_task_torch.py", "--seed", seed, "--threads", threads]
    environment = dict(workers.os.environ, **workers.pytorch_environment(threads, build))
    output = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True, env=environment)
    return json.loads(output.stdout)


def solution(run):
    setting = run.contenders.best("train", run.configurations["toy"], "explicit")
    rows = []
    for seed in range(1 if run.quick else 5):
        run.now(f"copy_task, seed {seed}")
        own, other = our_solution(run, seed), their_solution(run, seed, setting)
        rows.append({"seed": seed, "ours": own, "theirs": other, "ratio": other["training"] / own["training"]})
    medians = {f"{side}_{part}": measure.spread([r[side][part] for r in rows])["median"]
               for side in ("ours", "theirs") for part in ("training", "total")}
    ratio = medians["theirs_training"] / medians["ours_training"]
    return {"rows": rows, "medians": medians, "ratio": ratio, "total_ratio": medians["theirs_total"] / medians["ours_total"],
            "required": SOLUTION, "verdict": measure.verdict(ratio, SOLUTION), "setting": setting_text(setting)}


def show_solution(result):
    def side(key):
        return [Column(f"{key} steps", lambda r: str(r[result_key[key]]["steps"])),
                Column("training s", lambda r: f"{r[result_key[key]]['training']:.1f}"),
                Column("total s", lambda r: f"{r[result_key[key]]['total']:.1f}"),
                Column("right of 1000", lambda r: str(r[result_key[key]]["right"]))]
    result_key = {"xtape": "ours", "PyTorch": "theirs"}
    columns = [Column("seed", lambda r: str(r["seed"])), *side("xtape"), *side("PyTorch"),
               Column("ratio", lambda r: f"{r['ratio']:.2f}")]
    return (table("Time to solution: copy_task to its target, PyTorch with " + result["setting"], columns, result["rows"])
            + f"\nmedians: training {result['medians']['theirs_training']:.1f} s over "
            f"{result['medians']['ours_training']:.1f} s = {result['ratio']:.2f} x (required {result['required']} x: "
            f"{result['verdict']}), with evaluations {result['total_ratio']:.2f} x")
