"""The lab: a real fleet of small Debian nodes on this one machine (systemd-nspawn), for the tests, the README and the benchmarks.

Whoever uses it calls `fleet.up`, `fleet.down`, `fleet.status` and the operations on one node in `nodes`.
The lab knows nothing of roles or of how a host is deployed: it gives bare machines that answer SSH.
"""
