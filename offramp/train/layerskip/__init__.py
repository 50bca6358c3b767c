"""Fine-tuning with layer dropout and early-exit loss, so that one head reads off every depth (LayerSkip)."""
