"""What a person decided about quarantined records: released ones go back, and later scans remember."""
