"""The front end between clients and engines, and what may go wrong in it without any engine."""
