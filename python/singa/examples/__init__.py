"""Links to programs of the folder `examples`, which can be imported from here."""
