"""What early exits and full depth get right on pairs kept aside, fed the reference's own tokens.

An answer all of whose tokens are the argmax behind the reference's beginning is what greedy decoding would write: the
share of such answers is the exact match of greedy decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from offramp.train.decoder import Decoder
from offramp.train.layerskip.batches import Example, batches_by_length


@dataclass(frozen=True, slots=True)
class Measured:
    """Shares between 0 and 1, by exit; the model's last layer is one of them."""

    agreement: dict[int, float]  # tokens where the exit says what full depth says
    accuracy: dict[int, float]  # tokens where it says what the reference says
    exact: dict[int, float]  # answers that are right from end to end

    def line(self, num_layers: int) -> str:
        """For people, without the last layer's agreement with itself."""
        agreement = ", ".join(f"{layer}: {share:.2f}" for layer, share in self.agreement.items() if layer < num_layers)
        return f"exact match {self.exact[num_layers]:.3f}; exits agree at {agreement}"


def measure(
    decoder: Decoder, examples: Sequence[Example], prefix: Sequence[int], exits: Sequence[int], batch_rows: int
) -> Measured:
    """Over the whole vocabulary."""
    points = (*exits, decoder.config.num_layers)
    sums = {layer: [0, 0, 0] for layer in points}
    num_tokens = 0
    with torch.no_grad():
        head = decoder.head_rows()
        for batch in batches_by_length(examples, prefix, batch_rows):
            states = decoder.states_at(batch, points)
            said = {layer: (state @ head.t()).argmax(dim=1) for layer, state in states.items()}
            wanted = batch.target_ids
            sample = (batch.target_rows - batch.prefix.numel()) // batch.tokens.shape[1]
            num_tokens += len(wanted)
            for layer in points:
                right = said[layer] == wanted
                wrong_samples = len(torch.unique(sample[~right]))
                sums[layer][0] += int((said[layer] == said[points[-1]]).sum())
                sums[layer][1] += int(right.sum())
                sums[layer][2] += len(batch.tokens) - wrong_samples
    return Measured(
        {layer: agreed / num_tokens for layer, (agreed, _, _) in sums.items()},
        {layer: right / num_tokens for layer, (_, right, _) in sums.items()},
        {layer: whole / len(examples) for layer, (_, _, whole) in sums.items()},
    )
