"""What a big-little calibration promises, for which pair of models, and the file that keeps it.

As entries of early exits (`offramp.exits.certificate`), with both models and their formats in the place of a pack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from offramp.collaborate.big_little_policy import BigLittlePolicy
from offramp.exits.certificate import Certified, Running, common_fields, group, only, read_entries, write_calibration
from offramp.model.metadata import Fields

KIND = "offramp-big-little-calibration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(Running):
    """A big model and a little one, as they run."""

    model: str  # hash of the source tensors
    config: str  # what is computed with them: `config_identity`
    weights: str  # how many matrices run in which format: "q4 210, q8 1"
    kv: str
    little_model: str
    little_config: str
    little_weights: str
    little_kv: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedPair(Certified):
    """A certified big-little policy. Every token's K/V come from all layers of the big model: that is its depth."""

    policy: BigLittlePolicy
    circumstances: Pair
    little_share: float  # of the tokens

    @staticmethod
    def read(entry: Fields) -> CertifiedPair:
        """From JSON. Raises CorruptModelError naming the field."""
        only(entry, {each.name for each in fields(CertifiedPair)})
        pair = group(entry, "circumstances", Pair)
        return CertifiedPair(
            policy=BigLittlePolicy.read(group(entry, "policy", BigLittlePolicy)),
            circumstances=Pair(**{each.name: pair.text(each.name) for each in fields(Pair)}),
            little_share=entry.number("little_share", low=0.0, high=1.0),
            **common_fields(entry),
        )


def write_pairs(path: Path, entries: Sequence[CertifiedPair], provenance: Mapping[str, object]) -> None:
    """Keep entries, whole or not at all. Raises ResourceError."""
    write_calibration(path, entries, provenance, kind=KIND)


def read_pairs(path: Path) -> list[CertifiedPair]:
    """The entries of a file. Raises ModelNotFoundError if there is none, CorruptModelError naming the field."""
    return [CertifiedPair.read(entry) for entry in read_entries(path, KIND)]
