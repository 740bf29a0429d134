"""Ways into a machine: the SSH authority and the grants it signed."""
