"""Cards and boards as things that draw power: read what they say, write what their owner chose, read it back.

Reads go through NVML where it loads and nvidia-smi elsewhere; writes go through nvidia-smi, one card per call, by UUID. A Jetson is asked
through its own tools and sysfs. Knows nothing of manifests, of the controller, or of money.
"""
