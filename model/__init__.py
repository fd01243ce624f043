"""The queue's leases as a formal model, explored by Spin: `scripts/model`."""
