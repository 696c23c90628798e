"""Stand-ins for the modules through which guest code touches time, threads, chance and I/O."""
