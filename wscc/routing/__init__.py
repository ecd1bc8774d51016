"""TCME, the router: spreads the traffic of a phase over the links of a wafer. Import from its modules.

The order in which a request passes through them: `flows` (flows and demands), `initial` (XY routes, and candidate
detours around damage), `channels` (turns that keep routing free of deadlock), `search` (cheapest paths and trees, by
`relaxation`), `negotiation` (negotiated congestion), `split` (the shares of paths), `rounding` (whole bytes),
`router` (the five steps), `loads` (bytes by link), `bound` and `certificate` (loads that no router can beat).
"""
