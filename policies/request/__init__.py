"""Reading a request: the surface it calls, the slices of its body, its messages, digests and tokens."""
