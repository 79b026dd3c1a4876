"""One file per verb. A verb returns a value and tells its progress to a Watch; it prints nothing."""
