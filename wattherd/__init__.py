"""Wattherd: a herd of llamas, metered in watts."""
