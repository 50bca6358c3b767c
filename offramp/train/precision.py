"""The precision that matrices run in while something is trained; residual streams and what is trained stay f32."""

from __future__ import annotations

import torch

BF16 = ("avx512_bf16", "amx_bf16")
"""Instructions that multiply bf16, as torch names them."""


def matrix_dtype() -> torch.dtype:
    """bf16 where the processor multiplies it, else f32: elsewhere torch's bf16 is much the slower one."""
    capabilities = torch.cpu.get_capabilities()
    return torch.bfloat16 if any(capabilities.get(name) for name in BF16) else torch.float32
