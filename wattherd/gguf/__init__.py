"""GGUF files by their headers: read within bounds, judged, and never believed by name. Knows no network and no cache."""
