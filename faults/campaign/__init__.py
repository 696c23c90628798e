"""Campaigns: many runs, each with engines, a workload and faults that are drawn from its seed."""
