"""What the page shows of the library at work on bundled pictures: one module per tab, each gives plain data."""
