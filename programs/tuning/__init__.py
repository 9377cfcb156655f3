"""Search for better settings of a preset with Optuna; `python -m programs tune` is its command."""
