"""A small model beside the one that answers: loaded likewise, refused unless both mean the same by their token ids."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from offramp.errors import InvalidRequestError
from offramp.llm.loading import LoadedModel, load_model
from offramp.model.same_vocabulary import first_difference
from offramp.params import shown


def with_draft_model(
    loaded: LoadedModel, name: str | Path | None, *, threads: int | None = None, max_num_seqs: int = 16
) -> LoadedModel:
    """The model with a draft model, if one is asked for, in the formats that suit that.

    Raises InvalidRequestError for one of another vocabulary, naming the first difference, and what `load_model` raises.
    """
    if name is None:
        return loaded
    draft = load_model(name, threads=threads, max_num_seqs=max_num_seqs)
    return join_draft_model(loaded, draft)


def join_draft_model(loaded: LoadedModel, draft: LoadedModel) -> LoadedModel:
    """Both, if their vocabularies agree."""
    difference = first_difference(loaded.tokenizer, draft.tokenizer)
    if difference is not None:
        hint = "a draft model needs the same tokenizer: choose a smaller model of the same family"
        message = f"draft_model={shown(draft.name)} has another vocabulary than {loaded.name}: {difference}"
        raise InvalidRequestError(message, hint=hint, param="draft_model")
    return replace(loaded, draft=draft)
