"""Real coding agents before a scripted upstream. `bench.agents` is the way in; nothing here is for others."""
