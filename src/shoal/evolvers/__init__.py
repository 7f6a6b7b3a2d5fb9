"""What happens between generations: who copies whom, and with which new hyperparameters."""
