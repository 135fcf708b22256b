"""Measurements that can be repeated: methods answer, the harness judges, tables are made from what was recorded."""
