"""A small U-Net, as diffusion models have it: what a GPT has not.

Convolutions, group normalization, skip connections, up-sampling, and attention at its lowest level.
"""

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    def __init__(self, channels_in, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(4, channels_in),
            nn.SiLU(),
            nn.Conv2d(channels_in, channels, 3, padding=1),
            nn.GroupNorm(4, channels),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Conv2d(channels, channels, 3, padding=1),
        )
        same = channels_in == channels
        self.skip = nn.Identity() if same else nn.Conv2d(channels_in, channels, 1)

    def forward(self, x):
        return self.skip(x) + self.body(x)


class Attention(nn.Module):
    """Every pixel looks at every other one."""

    def __init__(self, channels, heads=2):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(4, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        batch, _, height, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, 3, self.heads, -1, height * width)
        q, k, v = qkv.transpose(3, 4).unbind(1)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(mixed.transpose(2, 3).reshape(x.shape))


class UNet(nn.Module):
    def __init__(self, channels=8, levels=2):
        super().__init__()
        widths = [channels << level for level in range(levels)]
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.down = nn.ModuleList(
            [nn.ModuleList([Residual(w, w), nn.Conv2d(w, 2 * w, 3, 2, 1)]) for w in widths]
        )
        lowest = channels << levels
        self.middle = nn.Sequential(Residual(lowest, lowest), Attention(lowest))
        self.up = nn.ModuleList([Residual(3 * w, w) for w in reversed(widths)])
        self.head = nn.Conv2d(channels, 3, 1)

    def forward(self, image, target):
        x, skips = self.stem(image), []
        for block, halve in self.down:
            x = block(x)
            skips.append(x)
            x = halve(x)
        x = self.middle(x)
        for block in self.up:
            x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, skips.pop()], dim=1))
        return functional.mse_loss(self.head(x), target)
