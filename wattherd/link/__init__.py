"""Ways to a host: SSH for the fleet, a subprocess for the controller itself, and the keys by which hosts are known."""
