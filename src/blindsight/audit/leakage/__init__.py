"""From updates back to samples: what leaks in the clear, what encryption stops, what it cannot stop."""
