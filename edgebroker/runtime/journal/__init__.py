"""The journal on a real disk: folder, segments, recovery at the start, and the wear of the card."""
