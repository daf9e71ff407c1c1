"""The loop of global cycles, and what one is: averaging, coded, fog, several tasks."""
