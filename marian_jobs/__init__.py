"""Background jobs for AI applications on Supabase: one Postgres table is the queue."""

__version__ = "0.1.0"
