"""Examples that are also commands. Each file is a link to an example in the repository's folder
`examples`, so the command and the example are the same program."""
