"""Collectives over the live dies of any connected machine: plans of chunked transfers and their times.

`choose.collective` returns the fastest plan; `check.violations` checks one independently.
"""
