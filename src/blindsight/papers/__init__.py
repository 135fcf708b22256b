"""The documents behind Blindsight as they were published, beside the library: to reproduce, to compare and to attack.

Nothing here is needed to use the library, and nothing in the library imports it: what protects less than the library
does is reached only through a module of this package.
"""
