"""Do models still run as they did when a router's or cascade's thresholds were certified?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offramp.errors import InvalidRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateCheck:
    """Refuses what a certificate does not fit, in words of its own."""

    certificate: str  # as messages name it: "the calibration"
    how: str  # it came to know what it is for: "measured"
    again: str  # what helps
    param: str  # the option that it came by

    def equal(self, what: str, found: object, wanted: object) -> None:
        """Raise InvalidRequestError naming what is not as it was."""
        if found != wanted:
            message = f"{self.certificate} does not fit: {what} is {found!r}, it was {self.how} with {wanted!r}"
            raise InvalidRequestError(message, hint=self.again, param=self.param)

    def running(self, which: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        """Raise InvalidRequestError naming the first field of `wanted` in which the little or big model differs."""
        for name, value in wanted.items():
            self.equal(f"{name} of the {which} model", found[name], value)
