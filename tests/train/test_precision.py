"""bf16 only where the processor multiplies it; what is trained runs in either."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (make oracle)")
pytestmark = pytest.mark.oracle

from offramp.train.drafter.recipe import Recipe as EagleRecipe  # noqa: E402
from offramp.train.drafter.run import train_eagle  # noqa: E402
from offramp.train.precision import matrix_dtype  # noqa: E402
from offramp.train.student.recipe import Recipe as StudentRecipe  # noqa: E402
from offramp.train.student.run import train_student  # noqa: E402

CAPABILITIES = [
    ({}, torch.float32),
    ({"avx2": True, "avx512_bf16": False, "amx_bf16": False}, torch.float32),
    ({"avx2": True, "avx512_f": True, "avx512_vnni": True}, torch.float32),
    ({"avx2": True, "avx512_bf16": True}, torch.bfloat16),
    ({"amx_bf16": True}, torch.bfloat16),
]
PRECISIONS = [False, True]


@pytest.fixture(params=PRECISIONS, ids=["f32", "bf16"])
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": request.param})


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


@pytest.mark.usefixtures("processor")
def test_drafters_train_in_either(toy_model: str, prompts_file: Path, tmp_path: Path) -> None:
    def train(name: str, recipe: EagleRecipe) -> object:
        out, work = tmp_path / name, tmp_path / f"{name}.work"
        pack = train_eagle(toy_model, prompts_file, out, recipe, weights="q8", threads=1, work=work, say=lambda _: None)
        return pack.config.provenance["curve"]

    curve = train("eagle", EagleRecipe(vocabulary=200, max_tokens=20, steps=20, batch_rows=400, held_out=0.2))
    assert isinstance(curve, list)
    assert curve[-1]["rates"][0] > curve[0]["rates"][0]


@pytest.mark.usefixtures("processor")
def test_students_train_in_either(toy_model: str, prompts_file: Path, tmp_path: Path) -> None:
    recipe = StudentRecipe(
        vocabulary=200, other_ids=16, max_tokens=20, steps=20, batch_rows=400, held_out=0.2, context=64
    )
    out, work = tmp_path / "student", tmp_path / "student.work"
    about = train_student(toy_model, prompts_file, out, recipe, weights="q8", threads=1, work=work, say=lambda _: None)
    rates = [point["rates"][0] for point in about["curve"]]  # type: ignore[index,union-attr]
    assert max(rates) > rates[0]
