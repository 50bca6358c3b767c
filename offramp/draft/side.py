"""The side layer of an eagle drafter: its shape, its weights, and what comes before it.

unit(v) is v over its root mean square: its RMSNorm without weights. A drafter's row has a token x and, of the place
before it, either the target's hidden states at the taps or the layer's own output a:
    first: s = first @ (first_norm * [unit(e(x)), unit(tap), unit(tap), ...])
    next: s = next @ (next_norm * [unit(e(x)), unit(a)])
    a = layer(s), a plain layer of Llama's kind;  logits = (rows of the target's head) @ rms_norm(a, norm)
e(x) is the target's embedding. parts = 1 + taps, or 2; hidden = the target's width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from offramp.core import Ids
from offramp.model.config import PLAIN_FORM, LayerAttention, ModelConfig
from offramp.model.tensors import LayerWeights, Matrix, Vector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SideWeights:
    """All weights of an eagle drafter but those it shares with its target."""

    first: Matrix  # [hidden, (1 + taps) * hidden]
    first_norm: Vector  # [(1 + taps) * hidden]
    next: Matrix  # [hidden, 2 * hidden]
    next_norm: Vector  # [2 * hidden]
    layer: LayerWeights
    norm: Vector  # [hidden]
    vocab_ids: Ids  # ascending: the tokens that it drafts


def side_config(target: ModelConfig, width: int, window: int) -> ModelConfig:
    """The target's heads, embedding and head around one plain layer: an MLP of that width, and it looks so far back."""
    return replace(
        target,
        num_layers=1,
        intermediate_size=width,
        form=PLAIN_FORM,
        query_scale=None,
        attention=(LayerAttention(rope=target.rope, window=window),),
    )
