"""Read user input: answers at the terminal, files, times and form values."""
