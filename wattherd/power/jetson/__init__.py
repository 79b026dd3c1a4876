"""A Jetson as a thing that draws power: its mode, its clocks and fan, and what its rails draw, through the board's own files and tools.

Nothing here answers a question that a tool asks, and no tool is waited for longer than its limit. What a board does not have is unknown.
"""
