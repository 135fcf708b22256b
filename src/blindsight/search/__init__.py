"""Image search over binary codes, and over codes that give the individual image away no more than epsilon allows."""
