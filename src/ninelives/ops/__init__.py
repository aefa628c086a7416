"""What operators need beside the runs themselves: health, positions, snapshots."""
