"""The passes, a folder for each; `registry` has their order."""
