"""Programs behind `python -m singa train` and `python -m singa predict`."""
