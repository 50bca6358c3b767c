"""Grammars: what callers say an answer must be, compiled for one model's tokens. llguidance does the parsing."""

from __future__ import annotations

from offramp.grammar.compiled import CompiledGrammar
from offramp.grammar.grammars import Grammars
from offramp.grammar.tools import Function, ToolAnswer

__all__ = ["CompiledGrammar", "Function", "Grammars", "ToolAnswer"]
