"""A run from its first epoch to its film: its folder, its checkpoints, its log and its command line."""
