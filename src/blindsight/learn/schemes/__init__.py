"""The five schemes behind one signature: each carries its messages between its roles and says what it protects."""
