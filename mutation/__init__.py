"""Mutation run over the SQL: every guard of every function is broken once, and the tests must notice."""
