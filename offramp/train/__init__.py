"""Training: exit heads, predictors and early-exit checkpoints. The only part of offramp that imports torch.

Modules here import torch at their top; nothing outside this package imports them before `extra.ready_torch()`.
"""
