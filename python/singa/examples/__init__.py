"""Examples that are commands, too. Each file is a link to one in the repository's folder `examples`
that a user copies and changes: the command is that very file, not a second trainer."""
