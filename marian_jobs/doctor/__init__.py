"""What bites a queue in production, looked for: `examine` says what is wrong, in figures, and what to do about it.

A check is a question to the database (SQL that reads and nothing else), a text, and an advice. What a check cannot see,
for want of rights or over the API, it says rather than fail; what needs no doing is a note.
"""

from marian_jobs.doctor.examine import examine_database, examine_project
from marian_jobs.doctor.finding import Bounds, Finding, Outcome, Report, Severity

__all__ = ["Bounds", "Finding", "Outcome", "Report", "Severity", "examine_database", "examine_project"]
