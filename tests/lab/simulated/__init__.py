"""The lab's simulated hardware: NVIDIA cards and Jetson boards that the real tools read and set, and whose watts follow the real server.

`layout` is the one state file of a node, shared with the C sources in `c/`; `figures` are the cards and boards; `model` and `board` say
what they draw; `daemon` is the one process on this machine that keeps every node's state moving. See docs/lab-gpus.md.
"""
