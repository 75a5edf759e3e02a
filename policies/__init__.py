"""The rules of Breakwater: plain Python on plain values.

Nothing in here imports mitmproxy, does I/O or reads a clock: time is an argument, in seconds of a monotonic
clock unless a docstring says wall clock.
"""
