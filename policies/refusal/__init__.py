"""Telling a refusal from an answer by its envelope; ``recogniser.Recogniser`` asks the tables."""
