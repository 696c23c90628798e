"""A vLLM engine on virtual time: vLLM's own loop, scheduler and hooks over a simulated worker."""

from sim.model.environment import prepare_environment

prepare_environment()  # vLLM reads it when a module of this package imports it
