"""A vLLM engine on virtual time: vLLM's own loop, scheduler and hooks over a simulated worker."""
