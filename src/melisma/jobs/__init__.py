"""Job files, the table of families, and what is built from a job."""
