"""What instances consumed, as their apps report it: kept record by record and summed by the day."""
