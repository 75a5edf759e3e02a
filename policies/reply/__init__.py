"""Answers of our own: the dialect of each wire, and the words in Chinese and English."""
