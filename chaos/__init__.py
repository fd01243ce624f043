"""The queue under fire, and the proof of what it kept: see docs/chaos.md."""
