"""What a model is on disk: where it may be saved, how it is serialized, and how a save replaces an older model."""
