"""What learning agents share: compiled functions, the device, the score of an epoch, where weights begin."""
