"""Pairs become padded batches: samples of like length together, and what all prompts begin with only once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import torch

from offramp.core import Ids
from offramp.errors import InvalidRequestError
from offramp.model.template import ChatTemplate
from offramp.model.tokenizer import Tokenizer
from offramp.train.decoder import Batch
from offramp.train.pairs import Pair

SORTED_AT_ONCE = 24
"""Batches' worth of samples that are sorted by length together: enough that little is padding."""


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and its answer as ids; the answer ends with the model's end token."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    def __len__(self) -> int:
        """Tokens that run: the last one yields nothing."""
        return len(self.prompt) + len(self.answer) - 1


def encode_pairs(pairs: Iterable[Pair], tokenizer: Tokenizer, template: ChatTemplate, max_len: int) -> list[Example]:
    """Through the chat template; what is longer than `max_len` tokens is left out."""
    end = tokenizer.eos_token_id
    if end is None:
        raise InvalidRequestError("the model has no end token", hint="answers need one to end with")
    examples = []
    for pair in pairs:
        prompt = template.encode_chat(tokenizer, [{"role": "user", "content": pair.prompt}])
        answer = tokenizer.encode(pair.reference, add_bos=False, parse_special=False)
        examples.append(Example(tuple(prompt), (*answer, end)))
    kept = [example for example in examples if len(example) <= max_len]
    if not kept:
        raise InvalidRequestError(
            f"every example is longer than {max_len} tokens", hint="give shorter prompts and references"
        )
    return kept


def shared_prefix(examples: Sequence[Example]) -> tuple[int, ...]:
    """What all prompts begin with, short of their last token."""
    first, last = (choose(example.prompt[:-1] for example in examples) for choose in (min, max))
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return tuple(token for token, _ in same)  # what the extremes share, all that lie between them share


def answer_vocabulary(examples: Iterable[Example], coverage: float, most: int) -> Ids:
    """The ids that make up this share of the answers, at most so many, most frequent first."""
    counts = Counter(token for example in examples for token in example.answer)
    wanted, covered, chosen = coverage * counts.total(), 0, []
    for token, count in counts.most_common(most):
        if covered >= wanted:
            break
        chosen.append(token)
        covered += count
    return np.array(chosen, np.int32)


def make_batch(examples: Sequence[Example], prefix: Sequence[int]) -> Batch:
    """One batch; every token of an answer is a target, nothing else is."""
    start = len(prefix)
    length = max(map(len, examples)) - start
    tokens = torch.zeros((len(examples), length), dtype=torch.long)
    targets = torch.full((len(examples), length), -1, dtype=torch.long)
    for row, example in enumerate(examples):
        assert example.prompt[:start] == tuple(prefix)
        own = example.prompt[start:] + example.answer[:-1]
        tokens[row, : len(own)] = torch.tensor(own)
        targets[row, len(example.prompt) - start - 1 : len(own)] = torch.tensor(example.answer)
    return Batch(torch.tensor(prefix, dtype=torch.long), tokens, targets)


def plan_epoch(lengths: Sequence[int], batch_rows: int, seed: int, epoch: int) -> list[list[int]]:
    """Which examples go together in an epoch, each in one batch; depends on its arguments alone.

    `lengths` are tokens behind the shared prefix; a batch has at most `batch_rows` of them, padding included.
    """
    noise = np.random.default_rng((seed, epoch))
    order = noise.permutation(len(lengths))
    mean = max(1.0, float(np.mean(lengths)))
    window = max(1, int(SORTED_AT_ONCE * batch_rows / mean))
    batches: list[list[int]] = []
    for start in range(0, len(order), window):
        some = sorted(order[start : start + window].tolist(), key=lambda i: lengths[i])
        batches += cut_batches(some, lengths, batch_rows)
    return [batches[i] for i in noise.permutation(len(batches))]


def batches_by_length(examples: Sequence[Example], prefix: Sequence[int], batch_rows: int) -> Iterator[Batch]:
    """Every example once, the shortest first."""
    lengths = [len(example) - len(prefix) for example in examples]
    order = sorted(range(len(examples)), key=lengths.__getitem__)
    for some in cut_batches(order, lengths, batch_rows):
        yield make_batch([examples[i] for i in some], prefix)


def cut_batches(order: Sequence[int], lengths: Sequence[int], batch_rows: int) -> Iterator[list[int]]:
    """Examples in this order, as many a batch as fit."""
    batch: list[int] = []
    longest = 0
    for index in order:
        longest = max(longest, lengths[index])
        if batch and longest * (len(batch) + 1) > batch_rows:
            yield batch
            batch, longest = [], lengths[index]
        batch.append(index)
    if batch:
        yield batch
