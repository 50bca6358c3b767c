"""Training exit heads and predictors for a model as it is, on its own answers: no labels needed."""
