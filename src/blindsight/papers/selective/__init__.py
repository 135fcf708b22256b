""" "Privacy Preserving Deep Learning for Image Classification" (PPDL), after Shokri and Shmatikov, CCS 2015."""
