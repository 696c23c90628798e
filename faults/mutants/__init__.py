"""Mutants: the connector with one deliberate defect each, which campaigns have to notice."""
