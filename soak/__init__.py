"""Mixed load for a long time, everything sampled that might grow: see docs/chaos.md."""
