"""What the files of a run are called, for readers without torch."""

CONFIG, RECORDS, MODEL = "config.toml", "records.jsonl", "model.safetensors"
CHECKPOINT, START = "checkpoint.safetensors", "run.toml"
