"""The other queues: one program each, tuned as its documentation says, all with the actions of `benchmarks.program`."""
