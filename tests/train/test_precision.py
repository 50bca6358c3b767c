"""bf16 only where the processor multiplies it; what is trained runs in either."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

from offramp.train.drafter import run as drafter_run  # noqa: E402
from offramp.train.drafter.recipe import Recipe as EagleRecipe  # noqa: E402
from offramp.train.exits import fit_all as exits_fit  # noqa: E402
from offramp.train.exits.recipe import Recipe as ExitsRecipe  # noqa: E402
from offramp.train.exits.run import train_exits  # noqa: E402
from offramp.train.layerskip import run as layerskip_run  # noqa: E402
from offramp.train.layerskip.recipe import Recipe as LayerSkipRecipe  # noqa: E402
from offramp.train.precision import matrix_dtype  # noqa: E402
from offramp.train.student import run as student_run  # noqa: E402
from offramp.train.student.recipe import Recipe as StudentRecipe  # noqa: E402

CAPABILITIES = [
    ({}, torch.float32),
    ({"avx2": True, "avx512_bf16": False, "amx_bf16": False}, torch.float32),
    ({"avx2": True, "avx512_f": True, "avx512_vnni": True}, torch.float32),
    ({"avx2": True, "avx512_bf16": True}, torch.bfloat16),
    ({"amx_bf16": True}, torch.bfloat16),
]


def quiet(line: str) -> None:
    pass


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """What this processor is told to be made for."""
    found: torch.dtype = request.param
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": found is torch.bfloat16})
    return found


@pytest.fixture
def arriving(monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[torch.dtype]]:
    """Sees what a function of a module is called with: the types that `told` reads from its arguments."""

    def see(module: ModuleType, name: str, told: Callable[..., set[torch.dtype]]) -> set[torch.dtype]:
        seen: set[torch.dtype] = set()
        real = getattr(module, name)

        def noted(*args: Any, **named: Any) -> Any:
            seen.update(told(*args))
            return real(*args, **named)

        monkeypatch.setattr(module, name, noted)
        return seen

    return see


@pytest.mark.parametrize(("capabilities", "dtype"), CAPABILITIES)
def test_the_processor_decides(
    capabilities: dict[str, bool], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert matrix_dtype() is dtype


def test_torch_tells_of_this_processor() -> None:
    told = torch.cpu.get_capabilities()
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split() if Path("/proc/cpuinfo").exists() else []
    assert bool(told.get("avx512_bf16")) == ("avx512_bf16" in flags)
    assert bool(told.get("amx_bf16")) == ("amx_bf16" in flags)


def test_drafters_train_in_either(
    dtype: torch.dtype,
    arriving: Callable[..., set[torch.dtype]],
    toy_model: str,
    prompts_file: Path,
    tmp_path: Path,
) -> None:
    seen = arriving(drafter_run, "fit", lambda training, eagle, taught: {eagle.net.dtype, eagle.net.head.dtype})
    recipe = EagleRecipe(vocabulary=200, max_tokens=20, steps=20, batch_rows=400, held_out=0.2)
    out, work = tmp_path / "eagle", tmp_path / "eagle.work"
    pack = drafter_run.train_eagle(toy_model, prompts_file, out, recipe, weights="q8", threads=1, work=work, say=quiet)
    assert seen == {dtype}
    curve = pack.config.provenance["curve"]
    assert isinstance(curve, list)
    assert curve[-1]["rates"][0] > curve[0]["rates"][0]


def test_students_train_in_either(
    dtype: torch.dtype,
    arriving: Callable[..., set[torch.dtype]],
    toy_model: str,
    prompts_file: Path,
    tmp_path: Path,
) -> None:
    seen = arriving(student_run, "fit", lambda training, student, taught: {student.decoder.dtype})
    recipe = StudentRecipe(
        vocabulary=200, other_ids=16, max_tokens=20, steps=20, batch_rows=400, held_out=0.2, context=64
    )
    out, work = tmp_path / "student", tmp_path / "student.work"
    about = student_run.train_student(
        toy_model, prompts_file, out, recipe, weights="q8", threads=1, work=work, say=quiet
    )
    assert seen == {dtype}
    rates = [point["rates"][0] for point in about["curve"]]
    assert max(rates) > rates[0]


def test_exits_train_in_either(
    dtype: torch.dtype,
    arriving: Callable[..., set[torch.dtype]],
    toy_model: str,
    prompts_file: Path,
    tmp_path: Path,
) -> None:
    seen = arriving(exits_fit, "fit_head", lambda head, matrix, *others: {matrix.dtype})
    recipe = ExitsRecipe(
        layers=(1,), rank=4, max_tokens=20, minutes=9.0, epochs=1, batch_rows=64, held_out=0.2, coverage=0.9
    )
    out, work = tmp_path / "pack", tmp_path / "pack.work"
    pack = train_exits(toy_model, prompts_file, out, recipe, weights="q8", threads=1, work=work, say=quiet)
    assert seen == {dtype}
    assert list(pack.exits) == [1]


def test_layerskip_trains_in_either(
    dtype: torch.dtype,
    arriving: Callable[..., set[torch.dtype]],
    toy_model: str,
    pairs_file: Path,
    tmp_path: Path,
) -> None:
    def told(course: Any, *others: object) -> set[torch.dtype]:
        matrices = {matrix.weight.dtype for layer in course.decoder.layers for matrix in layer.projections.values()}
        return {course.decoder.dtype, *matrices}

    seen = arriving(layerskip_run, "train", told)
    recipe = LayerSkipRecipe(
        steps=2, minutes=None, rank=4, learning_rate=2e-2, batch_rows=256, exits=(2,), held_out=0.2, coverage=1.0
    )
    out, work = tmp_path / "out", tmp_path / "out.work"
    figures = layerskip_run.fine_tune(toy_model, pairs_file, out, recipe, work=work, threads=1, say=quiet)
    assert seen == {dtype}
    assert figures["steps"] == 2
