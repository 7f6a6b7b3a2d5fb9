"""What each subcommand of `shoal` does."""
