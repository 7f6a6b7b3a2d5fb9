"""What a run tells while it goes on."""
