"""Softmax and its relatives: each row read once, written once, with the same bits whatever the batch around it.

A row of logits gets one number for each element, alone, among others, by a warp, a block or a cluster. Masks shorten
rows: what they hide is not read. Log-probabilities of tokens and the loss of a batch are results without a write.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from _device import any_device

import lowlevel_reduce as lr


def main() -> None:
    """Take softmax of rows in several ways, and compare the bits."""
    rng = np.random.default_rng(0)
    logits = (rng.standard_normal((6, 3000)) * 4).astype(np.float32)
    with any_device(), lr.Context.primary() as context, context.pushed():
        batch = lr.softmax(logits).numpy()
        alone = lr.softmax(logits[2:3]).numpy()
        print(f"a row alone and among six, the same bits: {alone.tobytes() == batch[2:3].tobytes()}")
        ways: tuple[dict[str, Any], ...] = (
            {"strategy": "block_rows", "cluster": 4},
            {"strategy": "turn_rows", "cluster": 2},
        )
        for way in ways:
            same = lr.softmax(logits, **way).numpy().tobytes() == batch.tobytes()
            print(f"{way}: the same bits: {same}")

        device = lr.DeviceArray.from_numpy(logits, lr.Stream.legacy(context))
        lr.softmax(device, out=device)
        print(f"in place: {device.numpy().tobytes() == batch.tobytes()}")

        scores = logits[:, :6].copy()
        causal = lr.softmax(scores, causal=True, scale=0.125).numpy()
        print(f"causal rows have {[int(np.count_nonzero(row)) for row in causal]} elements")

        target = np.array([5, 0, 2999, 1, 7, 30])
        found = lr.log_prob(logits, target)
        near = np.allclose(found.log_prob.numpy(), np.log(batch[np.arange(6), target]), atol=1e-5)
        loss = float(lr.cross_entropy(logits, target))
        print(f"log-probabilities are those of softmax: {near}; the loss is {loss:.4f}")

        y = lr.softmax(logits)
        gradient = lr.softmax_backward(logits, y).numpy()
        expected = lr.tree.softmax_backward(logits, y.numpy())
        print(f"the gradient has the bits of NumPy: {gradient.tobytes() == expected.tobytes()}")


if __name__ == "__main__":
    main()
