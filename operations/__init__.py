"""Seen and operated: the page, the metrics, the content view, the state file, the demo. I/O is allowed here."""
