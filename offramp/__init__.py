"""offramp: language models with dynamic execution, each token with only the compute it needs."""
