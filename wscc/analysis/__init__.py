"""Facts of a module that passes, driver and search ask for: pure functions from IR to frozen records."""
