"""What can be asked under /v1: one file per resource, each endpoint one call of the gateway."""
