"""What is done with runs: train, resume, evaluate, watch, plot, export, study; and the notebook."""
