"""Results as one SVG picture: ratios as bars, growth as curves on logarithmic axes."""
import math
from xml.sax.saxutils import escape

from tables import bytes_text, milliseconds

WIDTH, MARGIN, PANEL_HEIGHT, GAP = 860, 50, 270, 46
BLUE, GREY, RED, GREEN = "#2b6cb0", "#718096", "#c53030", "#2f855a"


class Picture:
    def __init__(self):
        self.parts, self.height = [], MARGIN

    def text(self, x, y, text, anchor="start", size=12, color="#1a202c", bold=False):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{color}"{weight}>'
                          f"{escape(text)}</text>")

    def line(self, x1, y1, x2, y2, color=GREY, width=1.0, dash=""):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
                          f'stroke-width="{width}"{dashes}/>')

    def bar(self, x, y, width, height, color):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height}" fill="{color}"/>')

    def dot(self, x, y, color):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>')

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height + MARGIN // 2}" '
                f'font-family="sans-serif"><rect width="100%" height="100%" fill="white"/>{"".join(self.parts)}</svg>\n')


def bars(picture, title, rows):
    """rows: (label, value, p10, p90, required, goal). A red mark is what is required, a green one the goal; a bar that
    falls short of the first of these is grey."""
    left, bar_height, step = 190, 14, 22
    longest = max(max(row[3], row[4] or 0, row[5] or 0) for row in rows)
    scale = (WIDTH - left - MARGIN - 60) / longest
    top = picture.height
    picture.text(MARGIN, top, title, bold=True, size=14)
    for i, (label, value, low, high, required, goal) in enumerate(rows):
        y = top + 16 + i * step
        picture.text(left - 8, y + 11, label, "end")
        picture.bar(left, y, value * scale, bar_height, BLUE if value >= (required or goal or 0) else GREY)
        picture.line(left + low * scale, y + 7, left + high * scale, y + 7, "black")
        for bound, color in ((required, RED), (goal, GREEN)):
            if bound:
                picture.line(left + bound * scale, y - 2, left + bound * scale, y + bar_height + 2, color, 2)
        picture.text(left + max(value, high, required or 0, goal or 0) * scale + 8, y + 11, f"{value:.2f}")
    picture.height = top + 16 + len(rows) * step + GAP


def curve(picture, left, width, row, guide):
    """One panel of a size and an amount, both logarithmic; the dashed line has the exponent `guide`."""
    sizes, amounts = row["sizes"], row["amounts"]
    top, bottom = picture.height + 30, picture.height + PANEL_HEIGHT - 60
    x0, x1 = math.log(sizes[0]), math.log(sizes[-1])
    guides = [amounts[-1] * (s / sizes[-1]) ** guide for s in sizes]
    y0, y1 = math.log(min(*amounts, *guides)), math.log(max(*amounts, *guides))

    def place(size, amount):
        return (left + (math.log(size) - x0) / (x1 - x0) * width,
                bottom - (math.log(amount) - y0) / (y1 - y0 or 1) * (bottom - top))

    picture.text(left, picture.height + 6, f"{row['name']}: exponent {row['exponent']:.2f}", bold=True, size=13)
    picture.line(left, bottom, left + width, bottom)
    picture.line(left, top, left, bottom)
    for values, color, dash in ((guides, GREY, "5,4"), (amounts, BLUE, "")):
        points = [place(s, a) for s, a in zip(sizes, values)]
        for (xa, ya), (xb, yb) in zip(points, points[1:]):
            picture.line(xa, ya, xb, yb, color, 1.5, dash)
    for size, amount in zip(sizes, amounts):
        x, y = place(size, amount)
        picture.dot(x, y, BLUE)
        picture.text(x, bottom + 16, str(size), "middle", 10)
    for amount in (amounts[0], amounts[-1]):
        shown = f"{milliseconds(amount)} ms" if row["unit"] == "s" else bytes_text(amount)
        x, y = place(sizes[amounts.index(amount)], amount)
        picture.text(x + (6 if amount == amounts[0] else -6), y - 8, shown, "start" if amount == amounts[0] else "end", 10)
    picture.text(left + width, bottom + 32, f"dashed: size^{guide}", "end", 10, GREY)


def draw(sections, circumstances):
    picture = Picture()
    picture.text(MARGIN, picture.height - 20, circumstances, size=11, color=GREY)
    picture.height += 10
    ratios = []
    for section, prefix in (("train", "train "), ("mha", "attention "), ("decode", "decoding ")):
        for row in sections.get(section, {}).get("rows", []):
            ratio = row["ratio"]
            ratios.append((prefix + row["name"], ratio["median"], ratio["p10"], ratio["p90"], row["required"], row["goal"]))
    if "solution" in sections:
        s = sections["solution"]
        each = [row["ratio"] for row in s["rows"]]
        ratios.append(("time to solution", s["ratio"], min(each), max(each), s["required"], None))
    if ratios:
        bars(picture, "times faster than PyTorch (red: required, green: goal, line: p10 to p90)", ratios)
    shares = [("train " + row["name"], row["share"]["median"], row["share"]["p10"], row["share"]["p90"], None, row["share_goal"])
              for row in sections.get("train", {}).get("rows", [])]
    if shares:
        bars(picture, "share of the rate of a matrix product (green: goal)", shares)
    rows = sections.get("growth", {}).get("rows", [])
    panel = (WIDTH - 2 * MARGIN - GAP) / 2
    for i, row in enumerate(rows):
        curve(picture, MARGIN + (i % 2) * (panel + GAP), panel, row, 2 if row["name"] == "attention time over T" else 1)
        if i % 2 == 1 or i + 1 == len(rows):
            picture.height += PANEL_HEIGHT
    return picture.svg()
