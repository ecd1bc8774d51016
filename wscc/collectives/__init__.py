"""Collectives over the live dies of any connected machine: schedules of chunked transfers and their times.

`choose.collective` is the way in; `check.violations` looks at what it gives, independently.
"""
