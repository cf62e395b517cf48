"""What lazy work did, in numbers, and what these tell."""
