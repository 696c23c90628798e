"""The released library on a CPU, over a scripted verbs provider."""
