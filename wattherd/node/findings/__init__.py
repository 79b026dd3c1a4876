"""What doctor makes of the texts that it read: pure functions, texts in, findings out. Reading belongs to doctor.py."""
