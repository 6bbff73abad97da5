"""The command line: arguments only, one file a command."""
