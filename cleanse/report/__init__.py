"""The report that people read: one self-contained page per scan or replay, and a scan's page served for review."""

from cleanse.report.page import FILE, write_report
from cleanse.report.replay_page import write_replay_report

__all__ = ["FILE", "write_replay_report", "write_report"]
