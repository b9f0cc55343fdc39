"""Files: atomic writes (`atomic`), named arrays (`state_files`), whose names are compared with a
model's (`fit`), calls that OPCHECK saves (`replay_file`), and JSON for others
(`json_text`)."""
