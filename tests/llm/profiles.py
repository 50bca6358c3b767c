"""A profile for tests."""

from __future__ import annotations

from offramp.core.profile import Gain, Machine, Profile, Trial

PROFILE = Profile(
    model="smollm2-135m",
    source_hash="02f23b40",
    risk=None,
    options={"draft": "suffix", "max_draft": 8},
    gain=Gain(ratio=1.21, low=1.15, high=1.27, turns=7),
    machine=Machine(cpu="Some CPU @ 2.00GHz: a 'good' one", num_cpus=2, offramp="0.1.0"),
    trial=Trial(
        workload="mine",
        workload_sha256="ab12",
        num_prompts=20,
        streams=1,
        max_tokens=128,
        minutes=9.5,
        date="2026-11-30T12:00:00+00:00",
    ),
)
