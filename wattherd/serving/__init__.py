"""What a served instance is, worked out once: its command line, its endpoint, its need of memory. Pure; read by roles and reports."""
