"""Fault kinds, schedules, campaigns, shrinking, reports and the command line.

So far it holds the command line (``faults.cli``) and what ``faultlab doctor`` examines
(``faults.environment``); no fault kind, schedule or campaign exists yet. It imports ``sim``;
``sim`` never imports it, so that an oracle cannot know what was injected.
"""
