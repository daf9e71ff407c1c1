"""What the files of a run are called, for who reads them without torch."""

CONFIG, RECORDS, MODEL = "config.toml", "records.jsonl", "model.safetensors"
CHECKPOINT = "checkpoint.safetensors"
