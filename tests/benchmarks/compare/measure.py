"""Times in turn, and what follows from them."""
import math
import os
import statistics
import time

BLOCK_SECONDS = 0.15
SETTLE_SECONDS = 0.03  # after a block, so that threads that spin for a while before they sleep do not disturb the next


def quantile(values, q):
    """By linear interpolation between the sorted values."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def spread(values):
    return {"median": statistics.median(values), "p10": quantile(values, 0.1), "p90": quantile(values, 0.9),
            "count": len(values)}


def rounds_for(seconds_a_round, quick):
    """Many rounds of short blocks, few of long ones."""
    if quick:
        return 5 if seconds_a_round < 1.5 else 3
    return 15 if seconds_a_round < 1.5 else 9 if seconds_a_round < 5 else 3


def in_turn(workers, quick=False, rounds=None):
    """Seconds a step of each worker by name, a list with one entry for each round: block by block, in turn."""
    for worker in workers.values():
        worker.warm_up(BLOCK_SECONDS)
    times = {name: [] for name in workers}
    began, done = time.monotonic(), 0
    while True:
        for name, worker in workers.items():
            times[name].append(worker.block())
            time.sleep(SETTLE_SECONDS)
        done += 1
        if rounds is None and done == 1:
            rounds = rounds_for(time.monotonic() - began, quick)
        if done >= rounds:
            return times


def ratios(numerator, denominator):
    """Of what was measured in the same round."""
    return [n / d for n, d in zip(numerator, denominator)]


def exponent(sizes, amounts):
    """The b of the power law amount = a size^b, by least squares of the logarithms."""
    x, y = [math.log(s) for s in sizes], [math.log(a) for a in amounts]
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    return sum((u - mean_x) * (v - mean_y) for u, v in zip(x, y)) / sum((u - mean_x) ** 2 for u in x)


def verdict(value, required=None, goal=None, at_most=False):
    """'goal met', 'met', 'missed', or nothing if nothing is required."""
    def reaches(bound):
        return bound is not None and (value <= bound if at_most else value >= bound)

    if goal is not None and reaches(goal):
        return "goal met"
    if required is None:
        return "" if goal is None else "short of goal"
    return "met" if reaches(required) else "missed"


class OtherWork:
    """How many processors others used since it was made, on average. Processes of our own count once they have ended."""

    def __init__(self):
        self.began, self.busy, self.own = time.monotonic(), self.busy_seconds(), self.own_seconds()

    @staticmethod
    def busy_seconds():
        with open("/proc/stat") as stat:
            user, nice, system, _idle, _wait, interrupts, soft_interrupts = map(int, stat.readline().split()[1:8])
        return (user + nice + system + interrupts + soft_interrupts) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def own_seconds():
        return sum(os.times()[:4])

    def processors(self):
        others = (self.busy_seconds() - self.busy) - (self.own_seconds() - self.own)
        return max(0.0, others / (time.monotonic() - self.began))
