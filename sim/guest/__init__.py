"""Code under test on virtual time: how it is loaded, fenced in, and what it gets instead of I/O."""
