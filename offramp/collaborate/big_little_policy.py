"""A big-little policy as data: when the little model writes, and what of it the big one lets stand. It is frozen."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from offramp.model.metadata import Fields

NEVER = 1.0
"""A fallback threshold that counts as above every probability: the little model writes nothing."""
LOSSLESS = 0.0
"""A rollback limit that no loss is below: only tokens stand that plain decoding draws."""
MAX_LOSS = 1e6
MAX_RUN = 64
"""Most tokens that a little model may write in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BigLittlePolicy:
    """The defaults are the paper's, but for the rollback limit, on which the loss depends most."""

    fallback: float = 0.6  # probability of its token below which the little model leaves it to the big one
    rollback: float  # loss of a token under the big model, in nats, from which on it is replaced
    max_run: int = 10  # tokens that the little model writes before the big one has its word

    def __post_init__(self) -> None:
        assert 0.0 <= self.fallback <= NEVER, self.fallback
        assert 0.0 <= self.rollback <= MAX_LOSS, self.rollback
        assert 1 <= self.max_run <= MAX_RUN, self.max_run

    @property
    def writes(self) -> bool:
        """The little model is asked at all."""
        return self.fallback < NEVER

    def fields(self) -> dict[str, object]:
        """As JSON; `read` gives an equal policy."""
        return asdict(self)

    @staticmethod
    def read(fields: Fields) -> BigLittlePolicy:
        """From JSON. Raises CorruptModelError naming the field."""
        max_run = fields.integer("max_run")
        if max_run > MAX_RUN:
            raise fields.error("max_run", f"at most {MAX_RUN}")
        return BigLittlePolicy(
            fallback=fields.number("fallback", low=0.0, high=NEVER),
            rollback=fields.number("rollback", low=0.0, high=MAX_LOSS),
            max_run=max_run,
        )
