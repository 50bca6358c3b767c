"""What drafters with trained weights give: `python -m benchmarks.trained_drafters`."""
