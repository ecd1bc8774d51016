"""What Hugging Face checkpoints hold: `config.json` as a program, weights under the names used there."""
