"""The demo programs' models once more, in Python: what users have who save memory with torch alone.

Same layers, sizes and operators as tests/programs/demo/{gpt,resnet,lstm}.cc; the values differ, as
parameters are drawn in another order. A model runs its blocks through `self.run(block, *tensors)`,
which is where a peer puts its checkpoints.
"""

import math

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    """Blocks run as they are until `run` is replaced."""

    def __init__(self):
        super().__init__()
        self.run = lambda block, *tensors: block(*tensors)


class GptBlock(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.attention_dropout, self.dropout = nn.Dropout(dropout), nn.Dropout(dropout)

    def forward(self, state, hidden):
        attended = state + self.attend(self.norm1(state), hidden)
        widened = functional.gelu(self.widen(self.norm2(attended)))
        return attended + self.dropout(self.narrow(widened))

    def attend(self, state, hidden):
        batch, length, width = state.shape
        parts = self.qkv(state).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (query / math.sqrt(width // self.heads)) @ key.transpose(-2, -1)
        weights = torch.softmax(scores.masked_fill(hidden, -math.inf), -1)
        mixed = (self.attention_dropout(weights) @ value).transpose(1, 2)
        return self.dropout(self.project(mixed.reshape(batch, length, width)))


class Gpt(Model):
    def __init__(self, options, classes):
        super().__init__()
        width = options.width
        self.characters = nn.Embedding(classes, width)
        self.positions = nn.Embedding(options.context, width)
        self.dropout = nn.Dropout(options.dropout)
        self.blocks = nn.ModuleList(
            GptBlock(width, options.heads, options.dropout) for _ in range(options.layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        hidden = torch.ones(options.context, options.context, dtype=torch.bool).triu(1)
        self.register_buffer("hidden", hidden)

    def forward(self, tokens, targets):
        places = torch.arange(tokens.size(1))
        state = self.dropout(self.characters(tokens) + self.positions(places))
        for block in self.blocks:
            state = self.run(block, state, self.hidden)
        logits = self.head(self.norm(state))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class ResidualBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, state):
        branch = self.first_norm(self.first(state)).relu_()
        branch = self.second_norm(self.second(branch))
        branch += self.shortcut(state)
        return branch.relu_()


class Resnet(Model):
    def __init__(self, options, classes):
        super().__init__()
        self.stem = nn.Conv2d(1, options.width, 3, 1, 1, bias=False)
        self.stem_norm = nn.BatchNorm2d(options.width)
        self.blocks, channels = nn.ModuleList(), options.width
        for stage in range(3):
            for layer in range(options.layers):
                outputs = options.width << stage
                stride = 2 if stage > 0 and layer == 0 else 1
                self.blocks.append(ResidualBlock(channels, outputs, stride))
                channels = outputs
        self.head = nn.Linear(channels, classes)

    def forward(self, images, labels):
        state = self.stem_norm(self.stem(images)).relu_()
        for block in self.blocks:
            state = self.run(block, state)
        return functional.cross_entropy(self.head(state.mean((2, 3))), labels)


class Lstm(Model):
    def __init__(self, options, classes):
        super().__init__()
        self.characters = nn.Embedding(classes, options.width)
        self.cells = nn.ModuleList(
            nn.LSTMCell(options.width, options.width) for _ in range(options.layers)
        )
        self.dropout = nn.Dropout(options.dropout)
        self.head = nn.Linear(options.width, classes)

    def advance(self, state, *before):
        """One time step of all layers: the states of each, hidden before cell."""
        states = []
        for layer, cell in enumerate(self.cells):
            given = state if layer == 0 else self.dropout(state)
            states.extend(cell(given, before[2 * layer : 2 * layer + 2]))
            state = states[-2]
        return tuple(states)

    def forward(self, tokens, targets):
        characters = self.characters(tokens.t())
        states = (torch.zeros_like(characters[0]),) * (2 * len(self.cells))
        tops = []
        for given in characters.unbind(0):
            states = self.run(self.advance, given, *states)
            tops.append(states[-2])
        logits = self.head(self.dropout(torch.stack(tops)))
        return functional.cross_entropy(logits.flatten(0, 1), targets.t().flatten())


MODELS = {"train_gpt": Gpt, "train_resnet": Resnet, "train_lstm": Lstm}
