"""What is written and drawn of each benchmark's results."""
