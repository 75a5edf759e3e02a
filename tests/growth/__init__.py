"""What every reader of outside bytes costs as its input grows."""
