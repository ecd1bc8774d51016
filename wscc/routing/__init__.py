"""TCME, the router: spreads the traffic of a phase over the links of a wafer. Import from its modules.

The order in which a request passes through them: `flows` (what is to be sent), `initial` (XY routes), `channels`
(which turns keep routing free of deadlock), `search` (cheapest paths and trees), `spread` (negotiated
congestion), `split` (the shares of paths), `settle` (whole bytes), `router` (the five steps), `wishes` (which turns
a damaged wafer needs), `loads` (what links carry), `bound` and `certificate` (what no router can beat).
"""
