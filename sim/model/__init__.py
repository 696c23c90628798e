"""Models as the testbed sees them: cache shapes, engine configuration, accountable bytes.

Nothing here knows about virtual time, engines or the fabric.
"""
