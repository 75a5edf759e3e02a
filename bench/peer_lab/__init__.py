"""Gateways of others beside Breakwater, before one upstream. `bench.peers` is the way in; nothing here is for others."""
