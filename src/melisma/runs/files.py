"""Names of a run's files, importable without torch."""

CONFIG, RECORDS, MODEL = "config.toml", "records.jsonl", "model.safetensors"
CHECKPOINT, START = "checkpoint.safetensors", "run.toml"
#: The folder with the source that learners make a run's models of.
BUNDLE = "bundle"
PREVIOUS = "checkpoint.previous.safetensors"
