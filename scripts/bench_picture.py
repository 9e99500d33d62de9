"""bench_picture: the report of bench-peers as an SVG. Each row is a group of bars, scaled by itself, because the rows'
values differ by hundreds. Colours follow the reader's light or dark scheme; narrow pictures get larger letters."""

from xml.sax.saxutils import escape

WIDTH = 760
MARGIN = 20
LABEL_HEIGHT, BAR_HEIGHT, BAR_GAP, ROW_GAP = 34, 26, 6, 18
MAX_BAR = 400  # the rest of the line is for the name and the value, also in large letters
HEAD_HEIGHT = 92

STYLE = """
  .page { fill: #ffffff } .text { fill: #1c2024 } .dim { fill: #5b646e }
  .kvick { fill: #0b6bcb } .peer { fill: #b6bfc9 } .pass { fill: #1a7f37 } .short { fill: #b35900 }
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 17px }
  .title { font-size: 24px; font-weight: 600 } .label { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #14171a } .text { fill: #e8ebee } .dim { fill: #a4adb7 }
    .kvick { fill: #4aa3ff } .peer { fill: #57616c } .pass { fill: #4cc566 } .short { fill: #f0a04b }
  }
  @media (max-width: 520px) { text { font-size: 24px } .title { font-size: 30px } .wide { display: none } }
"""


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def text(x, y, classes, content, anchor="start"):
    return f'<text x="{x}" y="{y}" class="{classes}" text-anchor="{anchor}">{escape(content)}</text>'


def verdict_of(row):
    """The worst of a row's targets; None if it has none that could be judged."""
    verdicts = {line["verdict"] for line in row["targets"]}
    return "short" if "short" in verdicts else "PASS" if "PASS" in verdicts else None


def draw_row(row, y):
    """(elements, height)"""
    verdict, parts = verdict_of(row), []
    threads = f"{row['threads']} thread{'s' * (row['threads'] > 1)}"
    parts.append(text(MARGIN, y + 22, "text label", row["label"]))
    parts.append(text(WIDTH - MARGIN - (70 if verdict else 0), y + 22, "dim wide", threads, "end"))
    if verdict:
        parts.append(text(WIDTH - MARGIN, y + 22, verdict.lower() + " label wide", verdict, "end"))
    largest = max(row["values"].values())
    top = y + LABEL_HEIGHT
    for who, value in row["values"].items():
        width = max(2.0, MAX_BAR * value / largest)
        ratio = "" if who == "kvick" else f", {row['ratios'][who]:.1f} x"
        parts.append(f'<rect x="{MARGIN}" y="{top}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="3" '
                     f'class="{"kvick" if who == "kvick" else "peer"}"/>')
        parts.append(text(round(MARGIN + width + 9, 1), top + 20, "text" if who == "kvick" else "dim",
                          f"{who} {number(value)}{' s' if row['unit'] == 's' else ''}{ratio}"))
        top += BAR_HEIGHT + BAR_GAP
    return parts, top - y - BAR_GAP + ROW_GAP


def draw(report):
    rows = [row for row in report["rows"] if row["values"]]
    y, parts = HEAD_HEIGHT, []
    for row in rows:
        elements, height = draw_row(row, y)
        parts += elements
        y += height
    peaks = [row["int8_peak_gops"] for row in rows if row["int8_peak_gops"]]
    peak = f", int8 peak {max(peaks):,.0f} GOPS" if peaks else ""
    head = [text(MARGIN, 40, "text title", "kvick beside other programs"),
            text(MARGIN, 68, "dim", "tokens per second; x: kvick is so many times as fast"),
            text(MARGIN, y + 16, "dim wide", f"{report['machine']['cpu']}{peak}")]
    height = y + 34
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-label="kvick beside other programs">\n<style>{STYLE}</style>\n'
            f'<rect class="page" width="{WIDTH}" height="{height}"/>\n' + "\n".join(head + parts) + "\n</svg>\n")
