"""The ``faultlab`` command line.

``app`` is the entry point, ``reexec`` fixes the process environment, ``dispatch`` runs one
command and turns what it returns or raises into output and an exit code, ``commands`` is the
table of commands. A command is one module with one function and one line in that table.
"""
