"""What people give a command: answers at the terminal, files, times, form values."""
