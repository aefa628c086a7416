"""Worker processes and who keeps them: started, watched, restarted, and never left behind."""
