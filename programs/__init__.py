"""What is done with runs: train, resume, evaluate, watch, plot, export, ship, tune, study; and the notebook."""
