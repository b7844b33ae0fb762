"""The report that people read: one self-contained page per scan, and the same page served for review."""

from cleanse.report.page import FILE, write_report

__all__ = ["FILE", "write_report"]
