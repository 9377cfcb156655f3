"""What learning agents share: networks, distributions, the device, copies of parameters."""
