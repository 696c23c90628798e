"""Scenarios after public reports, with what connectors do on them and have to do."""
