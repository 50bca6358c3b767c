"""The model in torch computes what the executor computes: every family, shared beginnings, padding. Needs torch."""

from __future__ import annotations

import numpy as np
import pytest

from offramp.model.config import LayerForm, ModelConfig
from offramp.model.executor import FINAL
from offramp.model.families import FAMILIES
from offramp.testing.batches import chain, pack_rows
from offramp.testing.families import family_config
from offramp.testing.toy import DictSource, toy_config, toy_source
from offramp.testing.twin import TwinExecutor

torch = pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

TOLERANCE = 2e-5
"""Of the largest value: torch adds in another order."""


def executors_states(source: DictSource, tokens: list[int]) -> tuple[list[np.ndarray], np.ndarray]:
    """Hidden states behind every layer, and final logits."""
    executor = TwinExecutor(source, kv="f32", num_pages=8)
    rows = pack_rows(chain(tokens), [range(8)])
    h, states = executor.embed(rows), []
    for layer in range(source.config.num_layers):
        h = executor.run_layers(h, rows, layer, layer + 1)
        states.append(h.numpy())
    return states, executor.logits(h, FINAL)


def check_equal(config: ModelConfig, prefix_len: int) -> None:
    from offramp.train.decoder import Batch, read_decoder

    source = toy_source(config, seed=3)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (2, 60)).tolist()
    tokens[1][:prefix_len] = tokens[0][:prefix_len]
    lengths = (60 - prefix_len, 41 - prefix_len)  # the second is padded
    behind = torch.tensor([tokens[0][prefix_len:], [*tokens[1][prefix_len:41], *[7] * 19]])
    batch = Batch(torch.tensor(tokens[0][:prefix_len], dtype=torch.long), behind, torch.full_like(behind, -1))
    decoder = read_decoder(source)
    expected = [executors_states(source, tokens[0]), executors_states(source, tokens[1][:41])]
    x = decoder.embed(batch)
    for layer in range(config.num_layers):
        x = decoder.run_layer(layer, x, batch)
        for sample, length in enumerate(lengths):
            start = prefix_len + sample * behind.shape[1]
            wanted = expected[sample][0][layer]
            own = x.numpy()[start : start + length]
            assert np.abs(own - wanted[prefix_len:]).max() < TOLERANCE * np.abs(wanted).max(), (layer, sample)
        assert np.abs(x.numpy()[:prefix_len] - expected[0][0][layer][:prefix_len]).max(initial=0.0) < 1e-3
    logits = decoder.norm(x, decoder.final_norm) @ decoder.head_rows().t()
    wanted = expected[0][1][prefix_len:]
    assert np.abs(logits.numpy()[prefix_len : prefix_len + lengths[0]] - wanted).max() < 5e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_equals_the_executor(name: str) -> None:
    check_equal(family_config(name), prefix_len=9)


@pytest.mark.parametrize("prefix_len", [0, 1, 30])
def test_beginnings_of_any_length_are_shared(prefix_len: int) -> None:
    check_equal(toy_config(), prefix_len)


def test_layers_may_have_everything_at_once() -> None:
    form = LayerForm(qkv_bias=True, qk_norm=True, post_norms=True, activation="gelu_tanh")
    check_equal(toy_config(form=form, embedding_scale=3.0, query_scale=0.3, tie_embeddings=False), prefix_len=5)


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_one_behind_the_other_are_as_each_alone(name: str) -> None:
    from offramp.train.decoder import read_decoder
    from offramp.train.flat import FlatBatch

    source = toy_source(family_config(name), seed=3)
    texts = [np.random.default_rng(i).integers(0, 260, count).tolist() for i, count in enumerate((1, 60, 33))]
    decoder = read_decoder(source)
    batch = FlatBatch(torch.tensor([token for text in texts for token in text]), (1, 60, 33), torch.tensor([0, 60, 93]))
    x = decoder.embed(batch)
    for layer in range(source.config.num_layers):
        x = decoder.run_layer(layer, x, batch)
        for text, own in zip(texts, x.split((1, 60, 33)), strict=True):
            wanted = executors_states(source, text)[0][layer]
            assert np.abs(own.numpy() - wanted).max() < TOLERANCE * np.abs(wanted).max(), (layer, len(text))


def test_the_wrong_weights_are_found() -> None:
    """The comparison above can fail."""
    config = toy_config(form=LayerForm(qk_norm=True))
    source = toy_source(config, seed=3)
    changed = dict(source.vectors) | {"layers.2.q_norm": source.vectors["layers.2.q_norm"] * np.float32(1.01)}
    states = executors_states(DictSource(config, source.matrices, changed), list(range(40)))[0]
    right = executors_states(source, list(range(40)))[0]
    assert np.abs(states[3] - right[3]).max() > 100 * TOLERANCE * np.abs(right[3]).max()
