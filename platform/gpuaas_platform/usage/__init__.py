"""Usage records that apps report for their instances, and daily totals of them."""
