"""Evidence of why replays are refused, and the report on it; off unless asked for."""
