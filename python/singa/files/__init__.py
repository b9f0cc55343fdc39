"""Files: atomic writes (`atomic`), named arrays (`state_files`), and calls that OPCHECK saves
(`replay_file`)."""
