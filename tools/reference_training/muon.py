"""The Muon optimiser (Jordan et al., 2024): momentum whose directions are made equally strong.

Learns the matrices inside layers in far fewer steps than Adam. Matrices of one shape are treated as a batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

# The published coefficients of the quintic and its number of rounds: singular values end between 0.7 and 1.2.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5
_MOMENTUM = 0.95


def orthogonal(matrices: Tensor) -> Tensor:
    """[n, rows, columns] -> the same singular vectors, all singular values near 1 (Newton–Schulz)."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    a, b, c = _QUINTIC
    for _ in range(_ROUNDS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon:
    """Takes the gradients from `grad`; Nesterov momentum, no weight decay."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._shapes: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            self._shapes[parameter.shape].append(parameter)
        self._momenta = {shape: torch.zeros(len(same), *shape) for shape, same in self._shapes.items()}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for shape, parameters in self._shapes.items():
            gradients = torch.stack([parameter.grad for parameter in parameters])
            momentum = self._momenta[shape].lerp_(gradients, 1 - _MOMENTUM)
            updates = orthogonal(gradients.lerp(momentum, _MOMENTUM))
            # A tall matrix must move as much per output as a square one.
            scale = rate * max(1.0, shape[0] / shape[1]) ** 0.5
            for parameter, update in zip(parameters, updates, strict=True):
                parameter.sub_(update, alpha=scale)
