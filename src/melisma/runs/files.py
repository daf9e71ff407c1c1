"""Names of a run's files, importable without torch."""

CONFIG, RECORDS, MODEL = "config.toml", "records.jsonl", "model.safetensors"
CHECKPOINT, START = "checkpoint.safetensors", "run.toml"
PREVIOUS = "checkpoint.previous.safetensors"
