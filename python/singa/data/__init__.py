"""Images for training: readers, generators, augmentation and a loader."""
