"""DvD: diversity by determinants."""
