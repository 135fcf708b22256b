"""The trusted service: it holds the raw pictures, verifies what apps propose, and lets only sifted data out."""
