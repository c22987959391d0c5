"""Checks of the arithmetic: ratios, quantiles, exponents, verdicts, tables, the picture, the protocol of workers."""
import sys
import unittest
import xml.etree.ElementTree

import measure
import plot
import sections
import tables
import workers


class FakeWorker:
    """Takes a known time for each step."""

    def __init__(self, log, name, seconds):
        self.log, self.name, self.seconds, self.steps = log, name, seconds, 1

    def warm_up(self, block_seconds):
        self.steps = max(1, round(block_seconds / self.seconds))

    def block(self):
        self.log.append(self.name)
        return self.seconds


class Arithmetic(unittest.TestCase):
    def test_ratios_are_of_the_same_round(self):
        # The machine was ten times slower in the second round: medians of times would say something else.
        times = {"theirs": [2.0, 30.0, 4.0], "ours": [1.0, 10.0, 1.0]}
        self.assertEqual(measure.ratios(times["theirs"], times["ours"]), [2.0, 3.0, 4.0])
        row = sections.compared("toy", times, 3.0, 4.0, (2, "OpenMP", "explicit"))
        self.assertEqual(row["ratio"]["median"], 3.0)
        self.assertEqual(row["verdict"], "met")
        self.assertEqual(row["setting"], "explicit, 2 threads, OpenMP")

    def test_quantiles_lie_between_sorted_values(self):
        self.assertEqual(measure.quantile([5, 1, 4, 2, 3], 0.5), 3)
        self.assertAlmostEqual(measure.quantile(range(11), 0.1), 1)
        self.assertAlmostEqual(measure.quantile([0, 10], 0.9), 9)
        self.assertEqual(measure.quantile([7], 0.9), 7)

    def test_exponent_of_a_power_law(self):
        sizes = [256, 512, 1024, 2048]
        self.assertAlmostEqual(measure.exponent(sizes, [3 * s**2 for s in sizes]), 2)
        self.assertAlmostEqual(measure.exponent(sizes, [5 / s for s in sizes]), -1)

    def test_verdicts(self):
        self.assertEqual(measure.verdict(4.0, 3.0, 4.0), "goal met")
        self.assertEqual(measure.verdict(3.5, 3.0, 4.0), "met")
        self.assertEqual(measure.verdict(2.9, 3.0, 4.0), "missed")
        self.assertEqual(measure.verdict(0.7, None, 0.8), "short of goal")
        self.assertEqual(measure.verdict(1.2, 1.1, at_most=True), "missed")
        self.assertEqual(measure.verdict(1.0, 1.1, at_most=True), "met")

    def test_sides_take_turns(self):
        log = []
        times = measure.in_turn({"ours": FakeWorker(log, "ours", 0.1), "theirs": FakeWorker(log, "theirs", 0.3)}, rounds=3)
        self.assertEqual(log, ["ours", "theirs"] * 3)
        self.assertEqual(times, {"ours": [0.1] * 3, "theirs": [0.3] * 3})

    def test_our_own_work_is_not_that_of_others(self):
        others = measure.OtherWork()
        others.began -= 10
        others.busy_seconds, others.own_seconds = (lambda: others.busy + 5), (lambda: others.own + 2)
        self.assertAlmostEqual(others.processors(), 0.3, places=2)


class Output(unittest.TestCase):
    def test_numbers_stand_to_the_right_and_words_to_the_left(self):
        columns = [tables.Column("name", lambda r: r[0]), tables.Column("ms", lambda r: r[1])]
        self.assertEqual(tables.table("title", columns, [("a", "7"), ("long name", "12.5")]),
                         "title\n  name         ms\n  a             7\n  long name  12.5")

    def test_units(self):
        self.assertEqual(tables.milliseconds(0.0123456), "12.35")
        self.assertEqual(tables.milliseconds(7.194), "7,194")
        self.assertEqual(tables.bytes_text(3_700_000_000), "3.70 GB")
        self.assertEqual(tables.number(1.25, "x"), "1.25 x")
        self.assertEqual(tables.number(None), "")

    def test_the_picture_is_xml_with_a_bar_for_each_ratio(self):
        ratio = {"median": 2.0, "p10": 1.5, "p90": 2.5}
        row = {"name": "a<b", "ratio": ratio, "required": 1.5, "goal": None, "share": ratio, "share_goal": 0.8}
        grown = {"name": "attention time over T", "sizes": [1, 2, 4], "amounts": [1.0, 4.0, 16.0], "unit": "s",
                 "exponent": 2.0}
        svg = plot.draw({"train": {"rows": [row]}, "growth": {"rows": [grown]}}, "machine & threads")
        tags = [element.tag.split("}")[1] for element in xml.etree.ElementTree.fromstring(svg).iter()]
        self.assertEqual(tags.count("rect"), 3)  # the ground and two bars
        self.assertEqual(tags.count("circle"), 3)


class Protocol(unittest.TestCase):
    program = ("import json, sys\nfor line in sys.stdin:\n"
               "    words = line.split()\n"
               "    print(json.dumps({'error': 'no'} if words[0] == 'fail' else {'seconds': 0.045 * int(words[1])}), flush=True)\n")

    def test_a_block_is_as_long_as_asked_and_an_error_is_raised(self):
        with workers.Worker([sys.executable, "-c", self.program]) as worker:
            worker.warm_up(0.15)
            self.assertEqual(worker.steps, 4)  # the least that fill it
            self.assertAlmostEqual(worker.block(), 0.045)
            with self.assertRaisesRegex(RuntimeError, "no"):
                worker.ask("fail")

    def test_a_worker_that_ends_is_reported(self):
        with workers.Worker([sys.executable, "-c", "pass"]) as worker:
            worker.process.wait()
            with self.assertRaisesRegex(RuntimeError, "ended when asked to run 1"):
                worker.ask("run", 1)


def run():
    suite = unittest.TestLoader().loadTestsFromModule(sys.modules[__name__])
    return 0 if unittest.TextTestRunner(verbosity=1).run(suite).wasSuccessful() else 1
