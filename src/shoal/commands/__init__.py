"""The subcommands of `shoal`."""
