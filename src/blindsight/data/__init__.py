"""Pictures, who owns them, and the features made of them."""
