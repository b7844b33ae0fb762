"""Statistics over many records: duplicates, floods, and triggers that go with one answer."""
