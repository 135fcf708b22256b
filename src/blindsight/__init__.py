"""Learn from, search through and share images that nobody may see."""
