"""Tables as text."""


class Column:
    """A heading, and what stands below it for a row."""

    def __init__(self, heading, text):
        self.heading, self.text = heading, text


def table(title, columns, rows):
    """Columns are as wide as their widest cell; those in which every cell starts with a digit are set to the right."""
    cells = [[column.heading for column in columns]] + [[column.text(row) for column in columns] for row in rows]
    lines = [title]
    right = [all(line[i][:1].isdigit() for line in cells[1:] if line[i]) for i in range(len(columns))]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        aligned = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right)]
        lines.append(("  " + "  ".join(aligned)).rstrip())
    return "\n".join(lines)


def number(value, unit=""):
    return "" if value is None else f"{value:g}{' ' + unit if unit else ''}"


def milliseconds(seconds):
    return f"{1000 * seconds:.4g}" if seconds < 1 else f"{1000 * seconds:,.0f}"


def bytes_text(count):
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.2f} GB"


def ratio_text(spread):
    return f"{spread['median']:.2f} ({spread['p10']:.2f}..{spread['p90']:.2f})"
