from tests.supabase.fix_rls import project

__all__ = ["project"]
