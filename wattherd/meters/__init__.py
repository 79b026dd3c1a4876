"""What measures energy, in the words of each instrument: counters and watts as they were printed, made into figures with their units.

Reads and parses; keeps no book. A meter that cannot tell gives nothing and says why, never 0.
"""
