"""The pieces every method shares; nothing here knows an Agent or a Trainer by name."""
