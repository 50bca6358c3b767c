"""A profile knows what is not as it was measured."""

from __future__ import annotations

from dataclasses import replace

from offramp.core.profile import Machine

HERE = Machine(cpu="some processor", num_cpus=2, offramp="0.1.0")


def test_the_same_machine_differs_in_nothing() -> None:
    assert HERE.differing(replace(HERE)) == []


def test_what_differs_is_named_with_both_values() -> None:
    there = replace(HERE, num_cpus=8, offramp="0.2.0")
    assert there.differing(HERE) == ["num_cpus is 2 here and was 8", "offramp is 0.1.0 here and was 0.2.0"]
    assert replace(HERE, cpu="another").differing(HERE) == ["cpu is some processor here and was another"]
