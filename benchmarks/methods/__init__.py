"""One small adapter per method: it answers, it never scores itself."""
