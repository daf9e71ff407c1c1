"""Data, models and training: the only room that knows torch."""
