"""The drawing of portraits of nobody: a batch of faces at a time, from numbers to pixels, with numpy alone."""
