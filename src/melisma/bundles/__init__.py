"""Modules of a job that travel as source files, pinned by one hash."""
