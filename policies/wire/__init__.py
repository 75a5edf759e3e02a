"""What bytes mean: surfaces, request facts, SSE frames, encodings, recognisers, answers per dialect, token estimate."""
