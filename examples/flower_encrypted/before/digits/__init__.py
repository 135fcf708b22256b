"""Five owners learn to read handwritten digits together."""
