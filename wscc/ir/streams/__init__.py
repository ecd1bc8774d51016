"""The streams level: programs of dies and their instructions, as data and as `.wsa` text."""
