#!/usr/bin/env python3
"""Writes the small planning problems beside it, as `remat-instance` files: what a training step of
a mixture of experts, of two graphs stacked, and of an LSTM looks like to the planner. Sizes and
times are made up, in the proportions of such models. Run it to change them; then prove the optima
again:

    scripts/prove_optima.py tests/data/planner/*.json --output tests/data/planner/optima.csv
"""

import json
import pathlib

MIB = 1 << 20


class Graph:
    """A forward, recorded; its backward runs the recorded ops the other way round."""

    def __init__(self):
        self.tensors, self.forward, self.backward = [], [], []
        self.saves, self.gradients, self.outputs = [], [], []
        self._tape = []

    def tensor(self, size, graph_input=False):
        self.tensors.append({"bytes": int(size), "input": graph_input})
        return len(self.tensors) - 1

    def parameter(self, size):
        return self.tensor(size, graph_input=True)

    def op(self, name, reads, sizes, time_ns, parameters=(), save=(), save_outputs=(), many=False):
        """Runs an op. Its backward needs `save` and the `save_outputs`-th of its results."""
        made = [self.tensor(size) for size in sizes]
        self.forward.append(
            {
                "name": name,
                "inputs": [*reads, *parameters],
                "outputs": made,
                "time_ns": int(time_ns),
            }
        )
        needed = [*save, *(made[i] for i in save_outputs)]
        self.saves.extend(t for t in needed if t not in self.saves and not self.tensors[t]["input"])
        self._tape.append((name, reads, parameters, needed, made, time_ns))
        return made if many else made[0]

    def run_backward(self, loss, since=0):
        """The backward of what was recorded since then, newest first."""
        gradient = {loss: None}
        for name, reads, parameters, needed, made, time_ns in reversed(self._tape[since:]):
            incoming = [gradient[t] for t in made if gradient.get(t) is not None]
            if not incoming and loss not in made:
                continue
            outputs, sums = [], []
            for read in reads:
                if self.tensors[read]["input"]:
                    continue
                fresh = self.tensor(self.tensors[read]["bytes"])
                outputs.append(fresh)
                before, gradient[read] = gradient.get(read), fresh
                if before is not None:
                    gradient[read] = self.tensor(self.tensors[read]["bytes"])
                    sums.append((before, fresh, gradient[read]))
            for parameter in parameters:
                fresh = self.tensor(self.tensors[parameter]["bytes"])
                outputs.append(fresh)
                self.gradients.append(fresh)
            self.backward.append(
                {
                    "name": f"{name}_backward",
                    "inputs": [*incoming, *needed, *parameters],
                    "outputs": outputs,
                    "time_ns": int(2 * time_ns),
                }
            )
            for before, fresh, total in sums:
                self.backward.append(
                    {"name": "add", "inputs": [before, fresh], "outputs": [total], "time_ns": 3000}
                )
        del self._tape[since:]

    def write(self, path):
        text = {
            "format": "remat-instance",
            "version": 1,
            "units": {"bytes": "byte", "time": "ns"},
            "tensors": self.tensors,
            "forward": self.forward,
            "backward": self.backward,
            "saves": self.saves,
            "gradient_outputs": self.gradients,
            "forward_outputs": self.outputs,
        }
        path.write_text(json.dumps(text, separators=(",", ":")) + "\n", encoding="utf-8")


def linear(graph, x, size, weight, time_ns, name="mm"):
    return graph.op(name, [x], [size], time_ns, [graph.parameter(weight)], save=[x])


def norm(graph, x, size):
    y, _ = graph.op("norm", [x], [size, size // 64], size / 900, (), [x], [1], many=True)
    return y


def moe(layers=3, experts=4):
    graph = Graph()
    size = 8 * MIB
    x = linear(graph, graph.parameter(size), size, MIB, 40_000, "embed")
    for _ in range(layers):
        h = norm(graph, x, size)
        qkv = linear(graph, h, 3 * size, 3 * MIB, 90_000)
        attention, _ = graph.op(
            "attention", [qkv], [size, size // 16], 260_000, (), [qkv], [0, 1], many=True
        )
        x = graph.op("add", [x, linear(graph, attention, size, MIB, 40_000)], [size], 9_000)
        h = norm(graph, x, size)
        router = graph.op(
            "router", [h], [size // 128], 6_000, [graph.parameter(MIB // 8)], [h], [0]
        )
        mixed = []
        for expert in range(experts):
            share = size // experts * (3 if expert == 0 else 1) // 2  # one is asked more often
            rows = graph.op("gather", [h, router], [share], 5_000, (), [router])
            wide = linear(graph, rows, 4 * share, MIB, 30_000)
            active = graph.op("gelu", [wide], [4 * share], 12_000, (), [wide])
            mixed.append(linear(graph, active, share, MIB, 30_000))
        out = graph.op("combine", [router, *mixed], [size], 14_000, (), [router, *mixed])
        x = graph.op("add", [x, out], [size], 9_000)
    loss = graph.op("loss", [x], [4], 50_000, [graph.parameter(4 * MIB)], [x])
    graph.outputs = [loss]
    graph.run_backward(loss)
    return graph


def two_graphs(layers=4):
    """Two towers; the second is done forward and backward while the first still holds its saves."""
    graph = Graph()
    size = 4 * MIB

    def tower(width):
        since = len(graph._tape)
        x = linear(graph, graph.parameter(size), size * width, MIB, 30_000, "embed")
        for _ in range(layers):
            h = norm(graph, x, size * width)
            wide = linear(graph, h, 4 * size * width, MIB, 70_000 * width)
            gate = graph.op("silu", [wide], [4 * size * width], 20_000 * width, (), [wide])
            x = graph.op(
                "add", [x, linear(graph, gate, size * width, MIB, 70_000 * width)],
                [size * width], 6_000,
            )  # fmt: skip
        return graph.op("loss", [x], [4], 20_000, [graph.parameter(MIB)], [x]), since

    first, start = tower(2)
    second, middle = tower(1)
    graph.outputs = [first, second]
    graph.run_backward(second, middle)
    graph.run_backward(first, start)
    return graph


def lstm(steps=12):
    graph = Graph()
    size = MIB
    weight = graph.parameter(8 * MIB)
    hidden = graph.op("zeros", [], [size], 2_000)
    cell = graph.op("zeros", [], [size], 2_000)
    seen = []
    for _ in range(steps):
        word = linear(graph, graph.parameter(size), size, MIB, 8_000, "embed")
        gates = graph.op("addmm", [word, hidden], [4 * size], 60_000, [weight], [word, hidden])
        parts = graph.op("gates", [gates], [4 * size], 12_000, (), (), [0])
        cell = graph.op("cell", [parts, cell], [size], 5_000, (), [parts, cell])
        squashed = graph.op("tanh", [cell], [size], 4_000, (), (), [0])
        hidden = graph.op("mul", [parts, squashed], [size], 4_000, (), [parts, squashed])
        seen.append(hidden)
    joined = graph.op("cat", seen, [size * steps], 20_000)
    logits = linear(graph, joined, 4 * size * steps, 4 * MIB, 300_000)
    loss = graph.op("loss", [logits], [4], 90_000, (), [logits])
    graph.outputs = [loss]
    graph.run_backward(loss)
    return graph


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent
    for build in (moe, two_graphs, lstm):
        build().write(here / f"{build.__name__}.json")
