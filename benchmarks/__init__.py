"""What marian_jobs costs, measured beside other Postgres queues on one server. Run by `scripts/bench`."""
