"""What every bench under scripts/ shares: tables, requirement lines, intervals, the figures' file.

    bench = Bench("frontier", quick=arguments.quick)
    bench.table(["budget", "peak"], rows)
    bench.require("peak <= budget at all points", worst, "<= 0 B over", worst <= 0)
    sys.exit(bench.finish())

A bench prints tables as it goes, one `PASS|FAIL requirement: figure (bound)` line per requirement,
and a last line with the count. `finish()` writes build/bench/NAME.json and returns 1 when a
requirement failed or none was made: a bench that judged nothing has shown nothing.
Times are ns and sizes bytes, as everywhere in Lowtide; the caller formats them.
"""

import dataclasses
import json
import os
import pathlib
import platform
import random
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent


def format_bytes(count):
    """'1.50 GiB', '312.0 MiB', '17 B': as lowtide::format_bytes prints them."""
    sign, value = ("-" if count < 0 else ""), float(abs(count))
    if value < 1024:
        return f"{sign}{int(value)} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1023.95 or unit == "TiB":
            return f"{sign}{value:.{2 if value < 10 else 1}f} {unit}"
    raise AssertionError("unreachable")


def format_table(headers, rows):
    """Columns padded to their widest cell; the first to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in [headers, *rows]]
    if any(len(row) != len(headers) for row in cells):
        raise ValueError(f"every row needs {len(headers)} cells: {headers}")
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = []
    for row in cells:
        first, *others = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join([first, *others]).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Interval:
    """A ratio of medians with its bootstrap interval."""

    ratio: float
    low: float
    high: float
    pairs: int

    @property
    def half_width(self):
        return (self.high - self.low) / 2

    def __str__(self):
        return f"{self.ratio:.4f} [{self.low:.4f}, {self.high:.4f}]"


def ratio_interval(numerator, denominator, level=0.95, resamples=2000, seed=1):
    """Median of the pairwise ratios of two interleaved series, with its bootstrap interval.

    Pairs are resampled whole, so that what slows both halves of a pair (another process, the clock)
    cancels instead of widening the interval. Deterministic for a seed.
    """
    top, bottom = np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)
    if top.shape != bottom.shape or top.ndim != 1 or top.size < 2:
        raise ValueError(f"need two series of one length >= 2, got {top.shape} and {bottom.shape}")
    if not (np.all(np.isfinite(top)) and np.all(bottom > 0)):
        raise ValueError("samples must be finite, and positive in the denominator")
    ratios = top / bottom
    picks = np.random.default_rng(seed).integers(0, ratios.size, size=(resamples, ratios.size))
    medians = np.median(ratios[picks], axis=1)
    low, high = np.quantile(medians, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(np.median(ratios)), float(low), float(high), int(ratios.size))


def interleave(arms, pairs, seed=1):
    """Runs each arm once per round, in an order shuffled per round: {name: [sample, ...]}.

    `arms` maps names to callables that return one sample. The caller passes the plain arm twice
    (`plain`, `plain_again`): their ratio is the A/A arm, what this machine calls a difference when
    there is none.
    """
    order, samples = random.Random(seed), {name: [] for name in arms}
    for _ in range(pairs):
        names = list(arms)
        order.shuffle(names)
        for name in names:
            samples[name].append(arms[name]())
    return samples


class Bench:
    """One run of one bench: collects requirements and figures, prints as it goes."""

    def __init__(self, name, quick=False, directory=None):
        self.name = name
        self.quick = quick
        self.figures = {}
        self._about = ""
        self._requirements = []
        self._tables = []
        self._directory = pathlib.Path(directory) if directory else ROOT / "build" / "bench"
        self._start = time.monotonic()

    def say(self, text):
        """Progress and remarks: flushed, since a bench may be killed by its time limit."""
        print(text, flush=True)

    def about(self, subject):
        """Tables, figures and requirements that follow are about `subject`, and say so."""
        self._about = f"{subject}: "

    def table(self, headers, rows, title=""):
        title = self._about + title
        if title:
            self.say(f"\n{title}")
        self.say(format_table(headers, rows))
        self._tables.append(
            {
                "title": title,
                "headers": list(headers),
                "rows": [[str(cell) for cell in row] for row in rows],
            }
        )

    def figure(self, key, value):
        """A number for the file that no requirement speaks of."""
        self.figures[self._about + key] = value

    def require(self, requirement, figure, bound, passed):
        """Prints the line at once and remembers it. `figure` and `bound` are printed as given."""
        passed = bool(passed)
        requirement = self._about + requirement
        self._requirements.append(
            {
                "requirement": requirement,
                "figure": str(figure),
                "bound": str(bound),
                "passed": passed,
            }
        )
        self.say(f"{'PASS' if passed else 'FAIL'} {requirement}: {figure} ({bound})")
        return passed

    def finish(self):
        """Writes the file, prints the last line, returns the process's exit code."""
        passed = sum(entry["passed"] for entry in self._requirements)
        total = len(self._requirements)
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{self.name}.json"
        content = {
            "format": "lowtide-bench",
            "version": 1,
            "name": self.name,
            "quick": self.quick,
            "seconds": round(time.monotonic() - self._start, 1),
            "machine": {
                "processor": platform.processor() or platform.machine(),
                "cores": os.cpu_count(),
                "kernel": platform.release(),
            },
            "requirements": self._requirements,
            "tables": self._tables,
            "figures": self.figures,
        }
        partial = path.with_suffix(".json.part")
        partial.write_text(json.dumps(content, indent=1, default=_plain) + "\n", encoding="utf-8")
        partial.replace(path)
        mode = " (quick)" if self.quick else ""
        self.say(f"{self.name}{mode}: {passed} of {total} requirements passed")
        return 0 if total and passed == total else 1


def _plain(value):
    """numpy scalars, arrays and Interval for json."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if dataclasses.is_dataclass(value):
        return dataclasses.asdict(value)
    raise TypeError(f"not a figure: {type(value).__name__}")
