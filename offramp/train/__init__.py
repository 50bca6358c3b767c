"""Training: exits, early-exit checkpoints, drafters, routers. The only part of offramp that imports torch.

Modules here import torch at their top, but for those of `router`, which need none; nothing outside this package imports
the others before `extra.ready_torch()`.
"""
