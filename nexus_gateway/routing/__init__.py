"""Routing a request to a tool: the router, its calibration, and what is learned from corrections."""
