"""The driver runs passes and backends in order: compile, simulate, train, report."""
