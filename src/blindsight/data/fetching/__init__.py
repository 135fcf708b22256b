"""Public collections, fetched once: verified, unpacked safely, whole or not at all."""
