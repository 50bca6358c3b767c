"""What requests to a model may choose, and why not the rest: the `offramp` object of its card.

Reasons are those with which a request would be refused, so that the two can't disagree.
"""

from __future__ import annotations

from offramp.core import RequestOptions, SamplingParams
from offramp.draft import DRAFTERS
from offramp.errors import InvalidRequestError
from offramp.llm.loading import LoadedModel
from offramp.llm.promises import Promises
from offramp.llm.serving import CALIBRATED, LOSSLESS, MODES, Serving


def offers(loaded: LoadedModel, serving: Serving, promises: Promises) -> dict[str, object]:
    """JSON values. A choice maps to null, or to why requests can't make it; drafters are those of mode lossless."""

    def reason(**fields: str | float | None) -> str | None:
        options = RequestOptions(**fields)  # type: ignore[arg-type]
        try:
            promises.keep(serving.execution(options, loaded.tokenizer), SamplingParams())
        except InvalidRequestError as error:
            return error.message
        return None

    risks = promises.risks
    some_risk = {CALIBRATED: risks[-1] if risks else None}
    draft = serving.default_draft_in(LOSSLESS)  # may be several, joined
    return {
        "mode": serving.mode,
        "modes": {mode: reason(mode=mode, risk=some_risk.get(mode)) for mode in MODES},
        "risk": serving.exits.risk,
        "risks": list(risks),
        "draft": draft,
        "drafters": {name: reason(mode=LOSSLESS, draft=name) for name in dict.fromkeys((draft, *DRAFTERS))},
        "exit_layers": list(promises.exit_layers),
        "num_layers": loaded.config.num_layers,
    }
