"""A transformer block in PyTorch whose log-probabilities for a token do not depend on the batch.

In the block of `lowlevel_reduce.torch.batch_invariant` torch's softmax, log_softmax, norms, sums and means are those of
the one tree. Matrix products are taken token by token, so that they have one shape whatever the batch. Without a GPU it
runs on tensors of the CPU, by NumPy.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

import lowlevel_reduce.torch

WIDTH, HEADS, VOCABULARY = 64, 4, 100


def product(x: Tensor, matrix: Tensor) -> Tensor:
    """Multiply each token by a matrix, one after the other: in one shape for every batch."""
    return torch.stack([row[None] @ matrix for row in x.reshape(-1, x.shape[-1])]).reshape(*x.shape[:-1], -1)


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return attention of one sequence and head, with the scores of each query apart."""
    scores = torch.stack([key @ each for each in query]) / query.shape[-1] ** 0.5
    weights = torch.softmax(scores, -1)
    return torch.stack([(each[:, None] * value).sum(0) for each in weights])


def log_probabilities(tokens: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """Return the log-probabilities of the token after each, for sequences of shape (batch, length)."""
    x = weights["embedding"][tokens]
    normal = functional.rms_norm(x, (WIDTH,), weights["norm"])
    parts = product(normal, weights["qkv"]).unflatten(-1, (3, HEADS, WIDTH // HEADS))
    mixed = [
        torch.stack([attention(*sequence[:, :, head].unbind(1)) for head in range(HEADS)], 1) for sequence in parts
    ]
    x = x + product(torch.stack(mixed).flatten(-2), weights["out"])
    hidden = functional.layer_norm(x, (WIDTH,), weights["norm"])
    return torch.log_softmax(product(hidden, weights["head"]), -1)


def main() -> None:
    """Compare a sequence alone with the same sequence in a batch of eight."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"torch {torch.__version__} on {device}")
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "embedding": (VOCABULARY, WIDTH), "norm": (WIDTH,), "qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH),
        "head": (WIDTH, VOCABULARY),
    }  # fmt: skip
    weights = {name: (torch.randn(shape, generator=generator) / 8).to(device) for name, shape in shapes.items()}
    tokens = torch.randint(VOCABULARY, (8, 5), generator=generator).to(device)
    with torch.no_grad(), lowlevel_reduce.torch.batch_invariant(device):
        batch, alone = log_probabilities(tokens, weights), log_probabilities(tokens[3:4], weights)
    print(f"log-probabilities alone and among eight are equal to the bit: {torch.equal(batch[3:4], alone)}")


if __name__ == "__main__":
    main()
