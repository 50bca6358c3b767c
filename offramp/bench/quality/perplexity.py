"""How surprised a model's weights are by an item's reference, whatever dynamic method runs."""

from __future__ import annotations

import math

from offramp.bench.workloads.item import Item
from offramp.bench.workloads.prompt_ids import prompt_ids
from offramp.core import SamplingParams
from offramp.llm.llm import LLM


def reference_perplexity(llm: LLM, item: Item) -> float | None:
    """exp of the mean negative log-likelihood, a token, of the first reference behind the prompt.

    None without a reference. Prompts run through all layers, so this depends on weights, formats and kernels alone.
    Raises ContextLengthError if both together are too long.
    """
    if not item.references:
        return None
    prompt = prompt_ids(item, llm.model)
    reference = llm.model.tokenizer.encode(item.references[0], add_bos=False, parse_special=False)
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    [output] = llm.generate([prompt + reference], params)
    [choice] = output.outputs
    if choice.error is not None:
        raise choice.error
    assert output.prompt_logprobs is not None, "they were asked for"
    told = [each.logprob for each in output.prompt_logprobs[len(prompt) :] if each is not None]
    return math.exp(-sum(told) / len(told)) if told else None
