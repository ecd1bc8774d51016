"""Import of Hugging Face checkpoints: a `config.json` as a program, and weights under the names used there."""
