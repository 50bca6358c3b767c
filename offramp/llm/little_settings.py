"""Big-little decoding as an engine is started with it: raw settings of `unchecked`, a calibration for `calibrated`.

The draft model is the little one. All is checked before anything is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from offramp.collaborate.big_little_policy import MAX_LOSS, MAX_RUN, NEVER, BigLittlePolicy
from offramp.errors import InvalidRequestError
from offramp.params import check_int, check_number, refused, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class LittleSettings:
    """Impossible settings raise InvalidRequestError; whether there is a little model, `check_model` says."""

    rollback: float | None = None
    fallback: float | None = None
    max_run: int | None = None
    calibration: str | Path | None = None  # a file of `offramp calibrate --draft-model`

    def __post_init__(self) -> None:
        if self.rollback is not None:
            check_number("little_rollback", self.rollback, 0.0, MAX_LOSS)
        if self.fallback is not None:
            check_number("little_fallback", self.fallback, 0.0, NEVER)
        check_int("max_little", self.max_run, 1, MAX_RUN, optional=True)
        if self.calibration is not None and not _is_file(self.calibration):
            hint = "`offramp calibrate MODEL --draft-model LITTLE` writes one"
            raise InvalidRequestError(
                f"little_calibration={shown(str(self.calibration))} is no file", hint=hint, param="little_calibration"
            )
        for name in ("fallback", "max_run"):
            if self.rollback is None and getattr(self, name) is not None:
                hint = "it is part of mode unchecked; calibrations have their own"
                message = f"{option(name)} needs little_rollback"
                raise InvalidRequestError(message, hint=hint, param=option(name))

    @property
    def given(self) -> str | None:
        """The first setting that was given, as callers know it; None: no little model writes."""
        return next((option(each.name) for each in fields(self) if getattr(self, each.name) is not None), None)

    @property
    def policy(self) -> BigLittlePolicy | None:
        """Of mode `unchecked`."""
        if self.rollback is None:
            return None
        chosen = {"fallback": self.fallback, "max_run": self.max_run}
        return BigLittlePolicy(
            rollback=self.rollback,
            **{name: value for name, value in chosen.items() if value is not None},  # type: ignore[arg-type]
        )

    def check_model(self, draft_model: object) -> None:
        """Refuse settings without a little model."""
        if self.given is not None and draft_model is None:
            hint = "name a small model of the same vocabulary by draft_model"
            raise InvalidRequestError(f"{self.given} needs draft_model", hint=hint, param=self.given)


NO_LITTLE = LittleSettings()


def option(name: str) -> str:
    """A setting's name as callers know it."""
    return "max_little" if name == "max_run" else f"little_{name}"


def _is_file(path: object) -> bool:
    if not isinstance(path, str | Path) or not str(path):
        raise refused("little_calibration", path, "the path of a file")
    try:
        return Path(path).is_file()
    except OSError:  # no name that a file could have
        return False
