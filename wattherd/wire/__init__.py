"""What travels between controller and node: frames, events, facts and manifests. Normative text: docs/protocol.md."""
