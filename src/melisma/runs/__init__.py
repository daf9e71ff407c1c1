"""Records of a run, its folder, and following it as it grows."""
