"""A connector that is slow and obviously correct, and the back door through which it copies."""
