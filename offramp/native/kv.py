"""The K/V memory of the CPU executor: its types, and the bytes of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from offramp.core import PAGE_SIZE
from offramp.model.config import ModelConfig
from offramp.native import _native
from offramp.params import check_choice

KvType = Literal["f16", "f32"]

KV_BYTES: Mapping[KvType, int] = {"f16": 2, "f32": 4}
"""Bytes of one stored number."""


def kv_type(name: str) -> KvType:
    """The K/V type of that name; another one is refused."""
    check_choice("kv", name, KV_BYTES)
    return next(kv for kv in KV_BYTES if kv == name)


def page_bytes(config: ModelConfig, kv: KvType) -> int:
    """Bytes of one page at all layers: keys, and values padded to whole vectors."""
    padded = -(-config.head_dim // _native.LANES) * _native.LANES
    return config.num_layers * config.num_kv_heads * PAGE_SIZE * (config.head_dim + padded) * KV_BYTES[kv]
