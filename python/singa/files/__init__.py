"""Files: atomic writes (`atomic`), named arrays (`state_files`), whose names are compared with a
model's (`fit`), and calls that OPCHECK saves (`replay_file`)."""
