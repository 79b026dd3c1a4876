"""What should be done, worked out from what was seen: pure functions, no machine, no clock of their own."""
