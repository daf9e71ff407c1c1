"""Phones and other browsers as learners: a link, a page, and what they may do."""
