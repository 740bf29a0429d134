"""Operations: requests, claims, leases, reports, endings and exits."""
