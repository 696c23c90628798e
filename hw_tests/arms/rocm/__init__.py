"""The released library with two GPUs and a real NIC. Unverified on hardware: never run yet."""
