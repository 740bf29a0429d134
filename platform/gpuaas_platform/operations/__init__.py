"""Operations: how anything long changes. Requests, claims, leases, reports, ends and exits."""
