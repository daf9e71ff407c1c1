"""Arrays in, arrays out; no word of learning."""
