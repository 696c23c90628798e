"""Reports as one HTML file each: a campaign, a run, or two campaigns side by side.

A page needs nothing but itself: styles and drawings are in it, there is no script, and no request
leaves it. Everything that comes from a run is escaped. What is drawn is aggregated first, so that
a page of ten thousand runs is hardly larger than one of a hundred.
"""

from __future__ import annotations

from faults.report.beside import without_faults
from faults.report.campaign_page import campaign_page
from faults.report.comparison_page import comparison_page
from faults.report.run_section import run_page

__all__ = ["campaign_page", "comparison_page", "run_page", "without_faults"]
