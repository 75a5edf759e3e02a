"""What meets the world: flows, files, shared state, page, metrics, commands. The version stands here, in its one place."""

VERSION = "0.2.0"
