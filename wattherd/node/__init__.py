"""The node program: what runs on a node as root, stdlib only. The controller packs this folder and never imports it."""
