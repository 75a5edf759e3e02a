"""Reading an answer: head, encodings, frames, documents and shapes; ``reader.Reader`` puts them together."""
