"""Ray on one machine. These modules know nothing of the platform."""
