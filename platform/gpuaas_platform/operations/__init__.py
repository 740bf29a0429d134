"""Operations, the records of long changes: requests, claims, leases, reports, ends and exits."""
